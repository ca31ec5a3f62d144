"""Rows beyond their tensors: keys, headers and times beside the values, and the digest."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from model_registry.package.signature import InputField, Signature, TensorInput
from scorer.decoding import decoder_factory
from tests.unit.scorer.minimal import minimal
from tests.unit.training.snapshot.test_join_labels import (
    DAY,
    FIRST,
    LABELS,
    NOW,
    SIGNATURE,
    Bench,
    event,
    training,
    with_both_classes,
)
from training.snapshot.join_labels import join


def test_keys_and_headers_are_included_if_a_version_reads_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[(80, b"k0", event(0, 80)[2]), (79, None, event(1, 79)[2])]], [with_both_classes()])
    assert bench.joined().rows.beside is None
    keyed = Signature((TensorInput("key", "string", (InputField("key", "string", source="key"),)),), SIGNATURE.outputs)
    settings = minimal(input={"id": "id"}, labels={"topic": LABELS})
    decoder = decoder_factory.create_decoder(settings, SIGNATURE)
    rows = join(tmp_path, bench.frozen, settings, training(), SIGNATURE, decoder, [keyed]).rows
    assert rows.beside is not None
    assert (rows.beside.keys, rows.parts(0, 1).keys(), rows.parts(1, 2).times()) == ([b"k0", None], [b"k0"], [NOW - 79 * DAY])
    chosen = rows.select(np.array([False, True]))
    assert chosen.beside is not None
    assert (chosen.beside.keys, len(chosen.beside.headers)) == ([None], 1)


def test_the_digest_of_rows_covers_their_positions_and_outcomes(tmp_path: Path) -> None:
    rows = Bench(tmp_path, [FIRST], [with_both_classes()]).joined().rows
    assert rows.digest() == rows.select(np.array([0, 1])).digest() == f"sha256:{rows.digest().removeprefix('sha256:')}"
    others = [rows.select(np.array([0])), rows.select(np.array([1, 0])), replace(rows, outcomes=rows.outcomes[::-1])]
    assert len({rows.digest(), *(other.digest() for other in others)}) == 4
