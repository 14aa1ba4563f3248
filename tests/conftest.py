pytest_plugins = ["tests.rules_report", "tests.grounds.fixtures"]
