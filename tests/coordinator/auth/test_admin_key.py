"""The admin key as a value."""

from tokenwire.coordinator.auth.admin_key import AdminKey


def test_a_key_does_not_show() -> None:
    """It is in neither repr nor str."""
    assert "sesame" not in f"{AdminKey('sesame')} {AdminKey('sesame')!r}"
