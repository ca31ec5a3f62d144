"""Score a file row by row with one version, and write its columns with the scores."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from model_registry.package import field_sources
from publisher.errors import USAGE, Fatal
from publisher.runtime.progress_bars import ShowProgress
from scorer.data_files.arrow import MixedTypes, infer_type, known_type, load_pyarrow
from scorer.data_files.formats import TableFormat
from scorer.data_files.write import table_writer
from scorer.dead_letters.reasons import Poison
from scorer.decoding.decoder_factory import create_decoder
from scorer.decoding.record_metadata import ListedMetadata
from scorer.evaluation.score_events import EventAnswers, answers
from scorer.models.loaded_model import LoadedModel
from scorer.offline.file_signature import for_lines, for_objects
from scorer.offline.input_files import FileRows, InputFile, open_file
from scorer.offline.json_cells import NULL, json_text
from scorer.settings import Settings

SCORED = "scored"
ADDED = ("score", "decision", "status", "error")
"""The columns that are added to the columns of the file. `status` is `scored`, or the reason of a dead letter."""


@dataclass(slots=True)
class FileSummary:
    """The number of rows of a file, and the number of rejected rows by reason.

    Attributes:
        defaults: the names of the optional fields without a column. Every row has the default of such a field.
        first: the number (from 1) and the error of the first rejected row; empty if there is none.
    """

    rows: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    defaults: Sequence[str] = ()
    first: str = ""


class ScoredFileRows:
    """Rows of a file with their scores; see `TableRows`."""

    def __init__(
        self, own: FileRows, own_names: Sequence[str], added: Sequence[str], results: EventAnswers, type_: Any
    ) -> None:
        self._own = own
        self._added = added
        self.names = [*own_names, *added]
        self._results = results
        self._type = type_

    def _columns(self) -> list[list[Any]]:
        """Return the added columns; scores are JSON texts, None if there is no score."""
        results = self._results
        rejected = results.rejected
        count = len(results.scores)
        return [
            [score or None for score in results.scores],
            results.decisions,
            [str(rejected[row].reason) if row in rejected else SCORED for row in range(count)],
            [_valid_text(rejected[row]) if row in rejected else None for row in range(count)],
        ]

    def json_rows(self) -> Iterator[bytes]:
        scores, *others = self._columns()
        heads = [json_text(name) + b":" for name in self._added]
        for own, score, *other in zip(self._own.json_objects(self._added), scores, *others, strict=True):
            cells = (score or NULL, *map(orjson.dumps, other))
            added = b",".join([head + cell for head, cell in zip(heads, cells, strict=True)])
            body = own[:-1].rstrip()
            is_empty = body.endswith(b"{") and not orjson.loads(own)
            yield b"%b%b%b}" % (body, b"" if is_empty else b",", added)

    def csv_rows(self) -> Iterator[Sequence[str]]:
        scores, *others = self._columns()
        texts = [None if score is None else _score_text(score) for score in scores]
        rows = zip(self._own.texts(), texts, *others, strict=True)
        return ([*own, *("" if value is None else value for value in added)] for own, *added in rows)

    def record_batch(self) -> Any:
        pa = load_pyarrow()
        scores, *others = self._columns()
        values = [None if score is None else orjson.loads(score) for score in scores]
        try:
            column = pa.array(values, self._type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise _not_arrow(error) from None
        added = [column, *(pa.array(column, pa.string()) for column in others)]
        return pa.RecordBatch.from_arrays([*self._own.arrays(), *added], names=self.names)


def _not_arrow(error: Exception) -> Fatal:
    return Fatal(f"a score has no form in Parquet: {error!s:.200}", "write the result as --format json or csv", USAGE)


def _valid_text(error: Poison) -> str:
    """Return an error as text that is valid UTF-8: unpaired surrogates, which an event may contain, are escaped."""
    return str(error).encode("utf-8", "backslashreplace").decode()


def _score_text(score: bytes) -> str:
    """Return a JSON score as a cell: a string without quotation marks, any other value as JSON."""
    return str(orjson.loads(score)) if score.startswith(b'"') else score.decode()


def score_file(
    loaded: LoadedModel,
    settings: Settings,
    path: Path,
    show: ShowProgress,
    *,
    format_: TableFormat | None,
    output: Path | None,
    prefix: str = "",
    summary: FileSummary,
) -> None:
    """Score a file, and write its rows with their scores. For a row that cannot be scored, the reason is written.

    Args:
        loaded: the loaded model version.
        settings: the settings of the scorer.
        path: the file; `-` for JSON lines from stdin.
        show: shows the progress.
        format_: the format of the result; None for the format of the input file.
        output: the file to write; None for stdout.
        prefix: a text that is put before the names of the added columns.
        summary: receives the numbers of rows and the optional fields without a column.

    Raises:
        Fatal: the file cannot be read or written, or has no column for a field; the columns of file and scores have the same
            names; a model server is unavailable.
    """
    signature = loaded.model.signature()
    added = [prefix + name for name in ADDED]
    with open_file(path, signature, settings) as source:
        if taken := [name for name in added if name in source.names]:
            raise Fatal(f"{path} already has the column {taken[0]!r}", "name the new columns with --prefix", USAGE)
        version = with_decoder(loaded, settings, source)
        summary.defaults = source.fitted.defaults if source.fitted else ()
        chosen = format_ or source.format
        score_type = _score_type(loaded) if chosen is TableFormat.PARQUET else None
        with table_writer(chosen, output) as writer:
            for rows, progress in source.read():
                results = _score_rows(version, rows, settings.batching.max_events)
                _count(summary, results)
                writer.write(ScoredFileRows(rows, source.names, added, results, score_type))
                show("scoring", *progress)


def with_decoder(loaded: LoadedModel, settings: Settings, source: InputFile) -> LoadedModel:
    """Return a copy of the loaded version whose decoder reads the rows of a file as JSON events."""
    if source.fitted is not None:
        return replace(loaded, decoder=create_decoder(for_objects(settings), source.fitted.signature))
    signature = loaded.model.signature()
    return replace(loaded, decoder=create_decoder(for_lines(settings, signature), field_sources.read_by_name(signature)))


def _score_type(loaded: LoadedModel) -> Any:
    """Return the Arrow type of the version's scores. Raises Fatal if Arrow has no such type.

    To get a score, the version scores its control row (`LoadedModel.control`).
    """
    try:
        return known_type(infer_type([orjson.loads(loaded.score(loaded.control).encoded()[0])]))
    except MixedTypes as error:
        raise _not_arrow(error) from None


def _score_rows(loaded: LoadedModel, rows: FileRows, most: int) -> EventAnswers:
    """Score rows in batches of at most `most` events."""
    results = EventAnswers(len(rows.events))
    for start in range(0, len(rows.events), most):
        values = rows.events[start : start + most]
        part = answers(loaded, values, ListedMetadata.empty(len(values)))
        results.scores[start : start + most] = part.scores
        results.decisions[start : start + most] = part.decisions
        results.rejected |= {start + row: poison for row, poison in part.rejected.items()}
    for row, poison in rows.invalid.items():
        results.rejected[row] = poison
        results.scores[row] = b""
        results.decisions[row] = None
    return results


def _count(summary: FileSummary, results: EventAnswers) -> None:
    if results.rejected and not summary.first:
        row = min(results.rejected)
        summary.first = f"row {summary.rows + row + 1}: {results.rejected[row]}"
    summary.rows += len(results.scores)
    summary.rejected.update(str(poison.reason) for poison in results.rejected.values())
