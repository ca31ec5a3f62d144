"""How often notices of channel moves lead to a request to the registry."""

from scorer.observability.channel_move_listener import CallCoalescer


def test_the_first_notice_is_forwarded_at_once_and_later_ones_together() -> None:
    coalescer = CallCoalescer(0.5)
    assert not coalescer.due(0.0)
    passed_on = []
    for now in (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6):
        if now < 1.4:
            coalescer.add()
        if coalescer.due(now):
            passed_on.append(now)
    assert passed_on == [1.0, 1.5]
