"""The validation gate: whether a challenger may replace the champion, decided on the hold-out rows."""
