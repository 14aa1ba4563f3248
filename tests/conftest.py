pytest_plugins = [
    "tests.rules_report",
    "tests.skips_report",
    "tests.sharing",
    "tests.clusters.fixtures",
    "tests.contract.rounds",
]
