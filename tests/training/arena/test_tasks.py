"""The arena's tasks: made from the seed alone, solvable, and not by the controls."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from training.arena.controls import controls_of
from training.arena.listops import CLOSE, FIRST_OPERATOR, ListOps, grow, median
from training.arena.recall import NOISE, Recall
from training.arena.settings import BUDGETS, TASKS
from training.arena.tasks import Examples, Stage, fixed, fresh
from training.arena.text import LENGTH, read_text
from training.errors import DataError

MADE = [name for name in TASKS if name != "text"]


@pytest.mark.parametrize("name", MADE)
def test_examples_come_from_the_seed_alone(name: str) -> None:
    task = TASKS[name](None)
    stage = task.stages[0]
    one, same, other = (fresh(task, stage, 8, seed, 5) for seed in (0, 0, 1))
    for part, again in zip(one, same, strict=True):
        assert np.array_equal(part, again)
    assert not np.array_equal(one.ids, other.ids)
    test, valid = (fixed(task, stage, split, 8) for split in ("test", "valid"))
    assert not np.array_equal(test.ids, valid.ids)
    assert np.array_equal(test.ids, fixed(task, stage, "test", 8).ids)


@pytest.mark.parametrize("name", MADE)
def test_ids_lengths_and_targets_are_within_their_limits(name: str) -> None:
    task = TASKS[name](None)
    for stage in task.stages:
        found = fixed(task, stage, "test", 16)
        assert found.ids.shape == (16, stage.length)
        assert found.ids.min() >= 0
        assert found.ids.max() < task.vocab_size
        assert found.lengths.max() <= stage.length
        assert found.targets.max() < task.num_labels
        padding = np.arange(stage.length) >= found.lengths[:, None]
        assert not found.ids[padding].any()
        assert (found.ids[~padding] > 0).all()


def answer(task: Recall, document: list[int]) -> int:
    """What followed the key that stands last."""
    where = document.index(document[-1], 1)
    return document[where + 1] - (1 + NOISE + task.keys)


@pytest.mark.parametrize("name", ["recall-8", "recall-16", "memory-1", "memory-2"])
def test_recall_asks_for_what_followed_the_key(name: str) -> None:
    task = TASKS[name](None)
    assert isinstance(task, Recall)
    for stage in task.stages:
        found = fixed(task, stage, "test", 30)
        for document, target in zip(found.ids.tolist(), found.targets, strict=True):
            assert answer(task, document) == target
            assert sum(1 + NOISE + task.keys <= token for token in document) == stage.pairs


def test_memory_asks_for_what_is_outside_the_last_segment() -> None:
    task = TASKS["memory-2"](None)
    found = fixed(task, task.stages[-1], "test", 200)
    assert (found.ids[:, -64:-1] <= NOISE).all()
    assert (found.ids[:, 0] <= NOISE + 16).all()


def value_of(tokens: list[int]) -> int:
    """Read an expression from its tokens, independently of how it was made."""
    stack: list[list[int]] = [[]]
    for token in tokens:
        if token == CLOSE:
            which, *values = stack.pop()
            ordered = sorted(values)
            stack[-1].append(
                [ordered[0], ordered[-1], int(np.median(values)), sum(values) % 10][which]
            )
        elif token >= FIRST_OPERATOR:
            stack.append([token - FIRST_OPERATOR])
        else:
            stack[-1].append(token - 1)
    [[value]] = stack
    return value


@pytest.mark.parametrize(("shortest", "longest"), [(20, 100), (100, 400), (500, 2000)])
def test_list_operations_have_the_value_they_say(shortest: int, longest: int) -> None:
    task = ListOps("listops", shortest, longest)
    found = fixed(task, task.stages[0], "test", 60)
    for ids, length, target in zip(*found, strict=True):
        assert shortest < length < longest
        assert value_of(ids[:length].tolist()) == target


def test_trees_have_the_depth_and_arguments_of_the_papers() -> None:
    arguments, deepest = [], 0
    source = random.Random(0)
    for _ in range(3000):
        tokens: list[int] = []
        if grow(source, tokens, 1, 2000) is None:
            continue
        depth, counts = 0, [0]
        for token in tokens:
            if token == CLOSE:
                arguments.append(counts.pop())
                depth -= 1
            else:
                counts[-1] += 1
                if token >= FIRST_OPERATOR:
                    counts.append(0)
                    depth += 1
            deepest = max(deepest, depth)
    assert (min(arguments), max(arguments), deepest) == (2, 10, 9)
    assert median([1, 2]) == 1
    assert median([5, 1, 9]) == 5


def test_no_control_solves_recall() -> None:
    task = Recall("recall", 8, (64,))
    found = controls_of(task, task.stages[-1])
    assert set(found) == {"majority", "bag of tokens and pairs"}
    assert max(found.values()) <= 0.2


def test_one_pair_is_solved_by_a_bag_so_the_control_can_learn() -> None:
    task = Recall("one", 1, (64,))
    assert controls_of(task, Stage(64, 1))["bag of tokens and pairs"] > 0.95


def test_the_root_operator_tells_something_of_list_operations() -> None:
    task = ListOps("listops", 20, 100)
    found = controls_of(task, task.stages[0])
    assert 0.28 < found["root operator"] < 0.4
    assert found["majority"] < found["root operator"]


def test_text_is_read_by_the_byte_and_keeps_its_splits_apart(tmp_path: Path) -> None:
    data = tmp_path / "reviews.csv"
    rows = [f"{'good' if i % 2 else 'bad'} number {i} ü,{i % 2}" for i in range(200)]
    data.write_text("text,label\n" + "\n".join(rows), encoding="utf-8")
    task = read_text(str(data))
    stage = task.stages[0]
    parts: list[Examples] = [fixed(task, stage, split, 1000) for split in ("train", "test")]
    seen = [{bytes((row[row > 0] - 1).astype(np.uint8)) for row in part.ids} for part in parts]
    assert not seen[0] & seen[1]
    assert all(text.decode().endswith("ü") for text in seen[0])
    assert stage.length == LENGTH
    with pytest.raises(DataError, match="needs labelled documents: name them with --text"):
        read_text(None)
    with pytest.raises(DataError, match=r"--text: absent\.csv does not exist"):
        read_text("absent.csv")


def test_a_small_budget_is_three_core_hours_for_fifteen_mechanisms_and_three_seeds() -> None:
    small = BUDGETS["small"]
    from training.arena.settings import USUAL  # noqa: PLC0415

    of_memory = [name for name in USUAL if name.startswith("memory")]
    seconds = 16 * sum(small.seconds[name] for name in USUAL if name not in of_memory)
    seconds += 2 * sum(small.seconds[name] for name in of_memory)
    assert 3 * seconds <= 3 * 3600
