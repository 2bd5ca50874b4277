"""Groups whose members take batches, and single messages at times, come through every fault as the others do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simpleconsumer.types import Message
from tests.simulator import member
from tests.simulator.application import Application, SteppedStream
from tests.simulator.campaign import run_seeds


class TakesBatches(Application):
    """Works on up to five messages at a time."""

    taken: list[int]

    def _take(self, stream: SteppedStream) -> Sequence[Message]:
        if self._taken % 7 == 3:
            return [next(stream)]
        batch = next(stream.batches(max_messages=1 + self._taken % 5))
        self.taken.append(len(batch))
        found = batch.record_batch.to_pydict()
        rows = zip(found["offset"], found["value"], strict=True)
        return [Message(batch.topic, batch.partition, offset, offset + 1, None, value) for offset, value in rows]


@pytest.mark.parametrize("profile", ["everything", "handovers"])
def test_a_group_that_takes_batches_comes_through(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    TakesBatches.taken = []
    monkeypatch.setattr(member, "Application", TakesBatches)
    failed = [outcome for outcome in run_seeds(range(25), "ours", profile, jobs=1) if outcome.findings]
    assert not failed, "\n".join(f"{outcome.seed}: {outcome.findings[0]}" for outcome in failed[:10])
    assert max(TakesBatches.taken) > 1
