"""The draft report of lost containers: it contains what the logs know, and asks for what they do not know."""

from __future__ import annotations

from edge.alerts.loss_report import LostContainerReport, draft, incident_of, text
from fairlead.records.alert import Alert
from tests.support.edge.detecting import FALL, HOUR, MINUTE, NEIGHBOURS, Voyage, booking, environment
from tests.support.edge.samples import BOX, IMO, NOW


def lost() -> list[Alert]:
    """Return alerts of two boxes lost half an hour apart, a third that was found aboard, and one lost on another
    day."""
    voyage = Voyage()
    voyage.ship()
    voyage.see(0, **FALL, geoLocation={"latitude": -30.5, "longitude": 155.01})
    voyage.see(12 * MINUTE, motion={"immersed": True})
    voyage.ship(20 * MINUTE)
    voyage.see(30 * MINUTE, number=NEIGHBOURS[0], **FALL)
    voyage.see(30 * MINUTE, number=NEIGHBOURS[1], **FALL)
    voyage.said += voyage.engine.forget(NEIGHBOURS[1], 1)
    voyage.see(48 * HOUR, number=NEIGHBOURS[2], **FALL)
    return voyage.said


def made(alerts: list[Alert], **more: object) -> LostContainerReport:
    return draft(
        incident_of(alerts[0], alerts),
        ship_name="MV Duck Star",
        environment=[environment(0), environment(HOUR), environment(60 * HOUR)],
        bookings={BOX: booking(commodity="toy-ducks")},
        **more,  # type: ignore[arg-type]
    )


def test_all_losses_of_an_incident_are_in_one_report() -> None:
    """All losses of one incident are in one report."""
    report = made(lost())
    assert [each.equipment_reference for each in report.containers] == [BOX, NEIGHBOURS[0]]
    assert (report.number_of_containers, report.number_is_estimate, report.report_type) == (2, True, "PRELIMINARY")
    assert report.ship.vessel_imo_number == IMO
    assert report.loss_date_time == NOW
    assert report.position is not None and report.position.latitude == -30.5
    assert report.weather is not None and report.weather.significant_wave_height == 7.0
    first = report.containers[0]
    assert (first.commodity, first.booking_reference) == ("toy-ducks", "B1")
    assert any(each.startswith("immersion") for each in first.evidence)  # from the alert's UPDATED state
    assert report.draft


def test_what_nobody_knows_is_asked_for() -> None:
    """The report asks for facts that no log contains."""
    alerts = lost()
    report = draft(incident_of(alerts[0], alerts), ship_name="MV Duck Star")
    assert "weather and sea state" in report.to_complete
    assert "dangerous goods, with UN numbers" in report.to_complete
    assert report.weather is None


def test_the_last_report_is_marked_final() -> None:
    report = made(lost(), report_type="FINAL")
    assert not report.number_is_estimate
    assert "FINAL" in text(report)


def test_the_text_has_what_a_master_reads_first() -> None:
    """The text begins with the facts that a master needs first."""
    lines = text(made(lost())).splitlines()
    assert "DRAFT, NOT SENT" in lines[0]
    body = "\n".join(lines)
    for part in (
        "MV Duck Star, IMO 9074729",
        "2026-03-01 12:00:00 UTC",
        "30-30.00S 155-00.60E (estimated)",
        "2 (estimate)",
        "wind 21.5 m/s, waves 7 m",
        f"  {BOX}",
        "toy-ducks, booking B1",
        "To be completed by the master",
    ):
        assert part in body
