pytest_plugins = [
    "tests.rules_report",
    "tests.skips_report",
    "tests.xdist_distribution",
    "tests.environments.fixtures",
    "tests.contract.rounds",
]
