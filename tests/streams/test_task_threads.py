"""Threads that do one thing at a time."""

from __future__ import annotations

import threading

from penstock.streams.outputs.task_threads import TaskThread


def test_what_is_offered_to_a_busy_lane_is_left_out() -> None:
    thread, go, done = TaskThread("test"), threading.Event(), list[str]()
    assert thread.offer(go.wait)
    assert not thread.offer(lambda: done.append("second"))
    assert not thread.wait(0)
    go.set()
    assert thread.wait(60)
    assert thread.offer(lambda: done.append("third")) and thread.wait(60)
    assert done == ["third"]


def test_one_thread_does_it_all_and_ends() -> None:
    thread, threads = TaskThread("test"), list[threading.Thread]()
    for _ in range(3):
        assert thread.offer(lambda: threads.append(threading.current_thread())) and thread.wait(60)
    thread.close()
    assert not thread.offer(lambda: None)
    assert len(set(threads)) == 1
    threads[0].join(60)
    assert not threads[0].is_alive()
