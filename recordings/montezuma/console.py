"""What the planner knows of the game: its actions, and where it keeps things in memory."""

from hyq.envs import montezuma

NOOP = 0
WITHOUT_FIRE = {1: 0, 10: 2, 11: 3, 12: 4, 13: 5, 14: 6, 15: 7, 16: 8, 17: 9}
"""Each action with FIRE, and the same one without."""

# Where the game keeps things in the console's 128 bytes of memory.
ROOM = montezuma.ROOM
X = 42
Y = 43
DYING = 55
"""Counts down while the death animation plays, else 0."""
BUTTON = 56
"""Whether FIRE was held lately: a jump needs the button to be let go first."""
LEVEL = 57
SPARE_LIVES = 58
"""Drops the moment a death starts."""
INVENTORY = 65
FALLING = 88
"""How long the player has been falling; a fall that is too long kills on landing."""
JOYSTICK = 102
"""The stick's last position: it differs between actions even where nothing else does."""
