"""What holds for all tests."""

from hypothesis import settings

pytest_plugins = ["tests.skips"]

# Tests run side by side on busy machines: how long an example takes says nothing of the code.
settings.register_profile("tokenwire", deadline=None)
settings.load_profile("tokenwire")
