"""The one-command demo: flights whose outcomes come late, a training that is killed, and a scorer that takes what it made."""
