"""Jobs for two threads: all are done, errors are not lost, and nothing is left behind."""

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from hyq.models.hands import Hands, Steps


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def slowly(done: list[str], what: str) -> None:
    time.sleep(0.02)
    done.append(what)


def test_every_job_is_done_when_the_block_ends(threads: int) -> None:
    hands = Hands()
    assert hands.helped == (threads > 1)
    done: list[int] = []
    for _ in range(50):
        done.clear()
        with hands as later:
            for number in range(7):
                later(partial(done.append, number))
        assert sorted(done) == list(range(7))


def test_two_threads_share_the_work(threads: int) -> None:
    hands, workers = Hands(), set()

    def job() -> None:
        workers.add(threading.get_ident())
        time.sleep(0.02)

    with hands as later:
        for _ in range(4):
            later(job)
    assert len(workers) == min(threads, 2)


def test_told_to_work_alone_it_does(threads: int) -> None:
    hands, workers = Hands(helped=False), []
    with hands as later:
        later(lambda: workers.append(threading.get_ident()))
        assert workers == [threading.get_ident()], "at once"
    assert torch.get_num_threads() == threads


def test_each_hand_has_half_of_the_threads_for_as_long_as_it_works(threads: int) -> None:
    hands, seen = Hands(), []
    half = max(1, threads // 2)
    with hands as later:
        later(lambda: seen.append(torch.get_num_threads()))
        with hands:
            assert torch.get_num_threads() == half
        assert torch.get_num_threads() == half
    assert seen == [half]
    assert torch.get_num_threads() == threads


def test_an_inner_block_ends_when_its_jobs_are_done(threads: int) -> None:
    done: list[str] = []
    with (hands := Hands()) as later:
        later(partial(slowly, done, "outer"))
        with hands:
            later(lambda: done.append("inner"))
        assert set(done) == {"outer", "inner"}


def test_what_a_job_raises_is_raised_where_the_block_ends(threads: int) -> None:
    hands, done = Hands(), []

    def fail() -> None:
        raise ValueError("a job failed")

    def work() -> None:
        with hands as later:
            later(fail)
            later(lambda: done.append(1))

    with pytest.raises(ValueError, match="a job failed"):
        work()
    done.clear()
    with hands as later:  # and goes on as if nothing had happened
        later(lambda: done.append(2))
    assert done == [2]
    assert torch.get_num_threads() == threads


def test_an_error_of_the_block_itself_waits_for_the_jobs_and_comes_first(threads: int) -> None:
    hands = Hands()
    done: list[str] = []

    def work() -> None:
        with hands as later:
            later(partial(slowly, done, "job"))
            raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        work()
    assert done == ["job"]


def test_an_interruption_waits_for_the_jobs_and_leaves_nothing_behind(threads: int) -> None:
    hands = Hands()
    done: list[str] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def slower() -> None:
        time.sleep(0.3)
        done.append("job")

    def work() -> None:
        with hands as later:
            later(slower)
            time.sleep(0.1)  # by now the helper has it, and this thread will wait for it
            signal.setitimer(signal.ITIMER_REAL, 0.05)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        if not hands.helped:
            return
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert done == ["job"]
    assert torch.get_num_threads() == threads
    with hands as later:
        later(partial(done.append, "next"))
    assert done == ["job", "next"]


def test_threads_that_were_set_later_are_kept(threads: int) -> None:
    hands = Hands()
    torch.set_num_threads(3)
    with hands as later:
        later(lambda: None)
    assert torch.get_num_threads() == 3


def test_a_helper_goes_home_with_its_hands() -> None:
    torch.set_num_threads(2)
    try:
        before = set(threading.enumerate())
        hands = Hands()
        (helper,) = set(threading.enumerate()) - before
        assert helper.is_alive()
        del hands
        gc.collect()
        helper.join(timeout=5)
        assert not helper.is_alive()
    finally:
        torch.set_num_threads(1)


def counting(steps: list[int], upto: int) -> Steps[int]:
    for number in range(upto):
        steps.append(number)
        yield
    return upto


def test_an_errand_is_done_when_its_result_is_asked_for(threads: int) -> None:
    hands, steps = Hands(), list[int]()
    errand = hands.errand(counting(steps, 5))
    if not hands.helped:
        assert not steps, "nobody has time before"
    assert errand.result() == errand.result() == 5
    assert steps == list(range(5))
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("two_threads")
def test_the_helper_goes_on_with_errands_by_itself() -> None:
    hands, steps = Hands(), list[int]()
    errand = hands.errand(counting(steps, 5))
    for _ in range(500):
        if errand.over:
            break
        time.sleep(0.01)
    assert errand.over


@pytest.mark.usefixtures("two_threads")
def test_jobs_come_before_errands() -> None:
    hands, order = Hands(), list[str]()
    begun, go_on = threading.Event(), threading.Event()

    def steps() -> Steps[None]:
        begun.set()
        go_on.wait(5)
        order.append("first step")
        yield
        order.append("second step")

    errand = hands.errand(steps())
    begun.wait(5)
    with hands as later:
        later(lambda: order.append("job"))  # while the helper takes the first step
        go_on.set()
    errand.result()
    assert sorted(order[:2]) == ["first step", "job"]
    assert order[2] == "second step"


@pytest.mark.usefixtures("two_threads")
def test_while_the_helper_is_at_an_errand_others_are_gone_on_with() -> None:
    hands, began, walkers = Hands(), threading.Event(), dict[str, int]()

    def slow() -> Steps[None]:
        walkers["slow"] = threading.get_ident()
        began.set()
        time.sleep(0.2)
        yield

    def other() -> Steps[None]:
        walkers["other"] = threading.get_ident()
        yield

    errands = [hands.errand(slow()), hands.errand(other())]
    began.wait(5)
    errands[0].result()
    assert walkers["other"] == threading.get_ident() != walkers["slow"]


def test_what_an_errand_raises_is_raised_with_its_result(threads: int) -> None:
    def failing() -> Steps[int]:
        yield
        raise ValueError("lost the way")

    hands = Hands()
    errand = hands.errand(failing())
    for _ in range(2):
        with pytest.raises(ValueError, match="lost the way"):
            errand.result()
    assert hands.errand(counting([], 3)).result() == 3


def test_an_errand_given_up_goes_no_further(threads: int) -> None:
    steps: list[int] = []
    errand = Hands().errand(counting(steps, 10**9))
    errand.give_up()
    taken = len(steps)
    time.sleep(0.05)
    assert len(steps) == taken


def test_a_program_may_end_within_an_errand() -> None:
    program = """
import torch
torch.set_num_threads(2)
from hyq.models.hands import Hands, Steps
hands, matrix = Hands(), torch.rand(700, 700)
def steps():
    while True:
        matrix @ matrix
        yield
hands.errand(steps())
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, timeout=60, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
