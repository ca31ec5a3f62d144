"""One batch, two versions: each answers its share of the keys, into the same slots, for one transaction.

What the candidate fails is answered by the champion. A batch that both answer without a fault, and whose events both read the
same way, is decoded once and becomes one set of columns; any other is worked arm by arm.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from publisher.errors import Aborted, Fatal, Retriable
from publisher.runtime.dependencies import MODEL, DependencyUnavailable
from scorer.backends.base import InferenceFailed
from scorer.crash_isolation.sandbox_process import SandboxProcessDied
from scorer.dead_letters.reasons import Reason
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.decoding.types import LookUpsPending
from scorer.models.servable import Servable
from scorer.scores import columnar_records
from scorer.scores.columnar_records import VersionScores
from scorer.worker.canary_routing import AWAY, CRASH, Arms

if TYPE_CHECKING:
    from scorer.worker.score_batch import Work

HOPELESS = 20  # events that it fails one by one, before it has answered any


def answer(work: "Work", champion: Servable, arms: Arms, alive: Callable[[], None]) -> None:
    """Answer the whole batch. Raises Away where the champion's model is."""
    if arms.candidate is not None and _together(work, champion, arms.candidate, arms, alive):
        work.scored.asked = int(np.count_nonzero(arms.canary))
        return
    mine = np.flatnonzero(arms.canary).tolist()
    failed = dict.fromkeys(mine, arms.why)
    if arms.candidate is not None:
        work.servable = arms.candidate
        failed = tried(work, [row for row in mine if row not in work.rejected], alive)
    work.servable = champion
    work.answer_all(np.flatnonzero(~arms.canary).tolist(), alive)
    for why in sorted(set(failed.values())):
        work.servable = champion.instead_of_canary(why)
        work.answer_all([row for row in mine if failed.get(row) == why], alive)
    work.servable = champion
    fell = Counter(why for row, why in failed.items() if row not in work.rejected and row not in work.scored.expired)
    work.scored.fallbacks = fell
    if arms.candidate is not None:
        work.scored.asked, work.scored.failed = len(mine) - fell[CRASH], fell.total() - fell[CRASH]


def tried(work: "Work", rows: list[int], alive: Callable[[], None], *, alone: bool = False) -> dict[int, str]:
    """Have the version that is up answer these rows; those that it fails, by why. Nothing is rejected: another may know. Where
    it is asked `alone`, so that nobody else would find its model broken, this raises ModelBroken.
    """
    failed: dict[int, str] = {}
    spans, good = [rows], False
    while spans:
        rows = spans.pop()
        alive()
        try:
            work.answer(rows, alive)
            refused = {row: str(work.rejected.pop(row).reason) for row in rows if row in work.rejected}
            failed |= refused
            good = good or len(refused) < len(rows)
        except (SandboxProcessDied, LookUpsPending):
            raise
        except (DependencyUnavailable, Retriable) as error:
            spans.append(rows)
            loading = isinstance(error, DependencyUnavailable) and error.what == MODEL  # again, after a death
            return failed | {row: CRASH if loading else AWAY for span in spans for row in span}
        except (Aborted, Fatal):
            raise
        except Exception as error:  # noqa: BLE001 - a candidate that raises must not stop a partition
            for row in rows:
                work.rejected.pop(row, None)
            why = str(Reason.INFERENCE_FAILED if isinstance(error, InferenceFailed) else Reason.INTERNAL_ERROR)
            if len(rows) > 1 and (good or len(failed) < HOPELESS):
                middle = len(rows) // 2
                spans += [rows[middle:], rows[:middle]]
            else:
                if alone and isinstance(error, InferenceFailed):
                    work.servable.loaded.vouch()
                failed |= dict.fromkeys(rows, why)
    return failed


def _together(work: "Work", champion: Servable, candidate: Servable, arms: Arms, alive: Callable[[], None]) -> bool:
    """Answer the batch as one, where nothing of it needs a second look. Whether it is answered."""
    batch, rows = work.batch, list(range(len(work.batch)))
    columns = isinstance(batch, ColumnarBatch) and len(rows) >= columnar_records.FEWEST and batch.carried is None
    plain = champion.encoder.plain and not work.rejected and not work.scoring.settings.output.headers
    if not (columns and plain) or arms.canary.all() or not arms.alike or work.skipped():
        return False
    began = time.perf_counter()
    try:
        _, expired, bad = work.facts.by_deadline(rows, work.now_ms())
        if expired or bad:
            return False
        decoded = work.decode(rows, {}, alive)
        if len(decoded.rows) < len(rows):
            return False
        decoded_at = time.perf_counter()
        parts = []
        for servable, at in ((champion, np.flatnonzero(~arms.canary)), (candidate, np.flatnonzero(arms.canary))):
            alive()
            scores = servable.loaded.score({name: tensor.take(at, axis=0) for name, tensor in decoded.tensors.items()}, alive)
            if not scores.finite().all():
                return False
            parts.append(VersionScores(at, scores, servable.encoder))
        inferred_at = time.perf_counter()
        records = work.records.columns(parts)
    except LookUpsPending:
        raise
    except (Aborted, Fatal, Retriable):
        return False  # whoever is away, or worse, is asked again by itself
    except Exception:  # noqa: BLE001 - whose fault it is shows arm by arm
        return False
    if records is None:
        return False
    work.place(range(len(batch)), records, "scored")
    work.timed(began, decoded_at, inferred_at)
    return True
