"""Which runs are held to have configured every setting."""

from tests.support.every_setting import FOLDERS


def test_the_folders_have_tests() -> None:
    assert all(list(folder.glob("test_*.py")) for folder in FOLDERS)
