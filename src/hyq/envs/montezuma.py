"""Montezuma's Revenge as the paper plays it (the set-up of Burda et al. 2018).

An agent step is four emulator frames; its picture is the pixelwise maximum of the last two, grey
and shrunk to 84x84. Each *frame* repeats the action of the frame before with probability 0.25
("sticky actions"), all 18 actions are legal, rewards are the game's points, and an episode is
truncated after 4,500 steps. There are no random no-ops and no FIRE at the start: in this game FIRE
jumps.

`Montezuma` is one game on `ALEInterface` and knows the console's memory, so its `info` has the
room; `MontezumaVector` is many games on ale-py's native vector environment, which does not show
the memory. The same ALE seeds and actions give both the same pictures and rewards, to the byte.
"""

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from numpy.typing import NDArray

GAME = "montezuma_revenge"
ACTIONS = 18
FRAME_SKIP = 4
STICKINESS = 0.25
STEP_LIMIT = 4500
SIDE = 84

# Where the game keeps things in the console's 128 bytes of memory.
ROOM = 3
X = 42
Y = 43
BUTTON = 56
"""Whether FIRE was held lately: a jump needs the button to be let go first."""
DYING = 55
"""Counts down while the death animation plays, else 0."""
LEVEL = 57
SPARE_LIVES = 58
"""Drops the moment a death starts."""
INVENTORY = 65
FALLING = 88
"""How long the player has been falling; a fall that is too long kills on landing."""
JOYSTICK = 102
"""The stick's last position: it differs between actions even where nothing else does."""

NOOP = 0
WITHOUT_FIRE = {1: 0, 10: 2, 11: 3, 12: 4, 13: 5, 14: 6, 15: 7, 16: 8, 17: 9}
"""Each action with FIRE, and the same one without."""

Frame = NDArray[np.uint8]


def emulator(seed: int = 0, *, stickiness: float = 0.0, frame_skip: int = 4) -> ALEInterface:
    """Start a game on an emulator whose state can be read, cloned and restored."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", stickiness)
    ale.setInt("frame_skip", frame_skip)
    rom = roms.get_rom_path(GAME)
    if rom is None:
        raise HyqError(f"ale-py {ale_py.__version__} has no {GAME} ROM: install ale-py 0.12")
    ale.loadROM(rom)
    ale.reset_game()
    return ale
