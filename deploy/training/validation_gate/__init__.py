"""The validation gate: decides on the hold-out rows whether a challenger (a new version) may replace the champion."""
