"""Correct wrong score records: score their events again, and publish the new scores as corrections."""
