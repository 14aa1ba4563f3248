pytest_plugins = [
    "tests.rules_report",
    "tests.skips_report",
    "tests.sharing",
    "tests.grounds.fixtures",
    "tests.contract.rounds",
]
