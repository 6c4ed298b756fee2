"""The virtual clock: who waits for it, and who is let go when it is moved."""

from __future__ import annotations

import threading

import pytest

from service.clock import VirtualClock


def test_a_sleep_ends_when_the_time_has_come() -> None:
    clock = VirtualClock()
    woken: list[float] = []

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        woken.append(clock.now())

    threads = [threading.Thread(target=sleep, args=(seconds,)) for seconds in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    clock.settle(2)
    assert clock.next_event() == 1.0
    clock.advance(1.5)
    threads[0].join(10)
    clock.settle(1)
    assert woken == [1.5]
    clock.advance(1.0)
    threads[1].join(10)
    assert woken == [1.5, 2.5]
    assert clock.next_event() is None


def test_no_time_is_no_sleep() -> None:
    VirtualClock().sleep(0.0)


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_an_alarm_counts_as_held_up_until_it_is_given(timeout: float | None) -> None:
    clock, lock = VirtualClock(), threading.Lock()
    alarm = clock.alarm(lock)
    seen: list[float] = []

    def wait() -> None:
        with lock:
            alarm.wait(timeout)
            seen.append(clock.now())

    thread = threading.Thread(target=wait)
    thread.start()
    clock.settle(1)
    if timeout is None:
        with lock:
            alarm.notify()
            with pytest.raises(TimeoutError):
                clock.settle(1, patience=0.01)
    else:
        clock.advance(timeout)
    thread.join(10)
    assert seen == [timeout or 0.0]
