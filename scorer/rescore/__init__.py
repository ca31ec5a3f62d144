"""Scores events again whose score records are wrong, and writes corrections beside them."""
