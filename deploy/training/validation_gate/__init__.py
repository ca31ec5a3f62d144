"""The gate: whether a challenger may take the place of the champion, judged on the rows of the hold-out."""
