"""Rules for webhook configurations. What cannot be evaluated is refused here, before it is registered."""

from __future__ import annotations

from typing import Any

from yarl import URL

from pocketkube.api.admission.expression_variables import Compiler
from pocketkube.api.validation import match_rules, name_rules, problems
from pocketkube.api.validation.problems import Problems
from pocketkube.api.validation.selectors import label_selector

Obj = dict[str, Any]

LONGEST_TIMEOUT_SECONDS = 30
_SEGMENTS = 3
_VERSIONS = ("v1", "v1beta1")


def mutating(found: Problems, new: Obj, old: Obj | None) -> None:
    validating(found, new, old)
    for index, hook in enumerate(new.get("webhooks") or ()):
        path = f"webhooks[{index}].reinvocationPolicy"
        found.one_of(path, hook.get("reinvocationPolicy"), ("IfNeeded", "Never"), required=False)


def validating(found: Problems, new: Obj, old: Obj | None) -> None:
    del old
    hooks = new.get("webhooks") or []
    for index, hook in enumerate(hooks):
        _webhook(found, f"webhooks[{index}]", hook)
    found.unique("webhooks", "name", hooks)


def _webhook(found: Problems, path: str, hook: Obj) -> None:
    name = hook.get("name") or ""
    wrong = name_rules.dns_subdomain(name)
    if not name:
        found.required(f"{path}.name")
    elif wrong:
        found.all_of(f"{path}.name", name, wrong)
    elif len(name.split(".")) < _SEGMENTS:
        found.invalid(f"{path}.name", name, "should be a domain with at least three segments separated by dots")
    _review_versions(found, f"{path}.admissionReviewVersions", hook.get("admissionReviewVersions") or [])
    for rule_index, rule in enumerate(hook.get("rules") or ()):
        match_rules.rule(found, f"{path}.rules[{rule_index}]", rule)
    for field, supported in (("failurePolicy", ("Fail", "Ignore")), ("matchPolicy", ("Equivalent", "Exact"))):
        found.one_of(f"{path}.{field}", hook.get(field), supported, required=False)
    effects = hook.get("sideEffects")
    if effects is None:
        found.required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    else:
        found.one_of(f"{path}.sideEffects", effects, ("None", "NoneOnDryRun"))
    seconds = hook.get("timeoutSeconds", 1)
    if not 1 <= seconds <= LONGEST_TIMEOUT_SECONDS:
        why = f"the timeout value must be between 1 and {LONGEST_TIMEOUT_SECONDS} seconds"
        found.invalid(f"{path}.timeoutSeconds", seconds, why)
    for field in ("namespaceSelector", "objectSelector"):
        label_selector(found, f"{path}.{field}", hook.get(field) or {})
    _client(found, f"{path}.clientConfig", hook.get("clientConfig") or {})
    conditions = hook.get("matchConditions") or []
    match_rules.conditions(found, f"{path}.matchConditions", conditions, Compiler(with_params=False))


def _review_versions(found: Problems, path: str, versions: list[str]) -> None:
    if not versions:
        found.required(path, f"must specify one of {', '.join(_VERSIONS)}")
    elif not set(versions) & set(_VERSIONS):
        found.invalid(path, versions, f"must include at least one of {', '.join(_VERSIONS)}")


def _client(found: Problems, path: str, client: Obj) -> None:
    if ("url" in client) == ("service" in client):
        found.required(path, "exactly one of url or service is required")
    elif "url" in client:
        _url(found, f"{path}.url", client["url"])
    else:
        service = client["service"]
        if not service.get("name"):
            found.required(f"{path}.service.namespace" if service.get("namespace") else f"{path}.service.name")
        if not service.get("namespace"):
            found.required(f"{path}.service.namespace")
        port = service.get("port", 443)
        if not 1 <= port <= problems.HIGHEST_PORT:
            why = f"port is not valid: must be between 1 and {problems.HIGHEST_PORT}, inclusive"
            found.invalid(f"{path}.service.port", port, why)
        if "path" in service:
            _service_path(found, f"{path}.service.path", service["path"])


def _service_path(found: Problems, path: str, given: str) -> None:
    if given in ("/", ""):
        return
    if not given.startswith("/"):
        found.invalid(path, given, "must start with a '/'")
    for index, segment in enumerate(given[1:].removesuffix("/").split("/")):
        if not segment:
            found.invalid(path, given, f"segment[{index}] may not be empty")
        else:
            found.all_of(path, given, (f"segment[{index}]: {why}" for why in name_rules.dns_subdomain(segment)))


def _url(found: Problems, path: str, text: str) -> None:
    form = "; desired format: https://host[/path]"
    try:
        url = URL(text)
    except ValueError as problem:
        found.required(path, f"url must be a valid URL: {problem}{form}")
        return
    if url.scheme != "https":
        found.invalid(path, url.scheme, f"'https' is the only allowed URL scheme{form}")
    if not url.host:
        found.invalid(path, url.host or "", f"host must be specified{form}")
    for part, given in (
        ("user information", url.user),
        ("fragments", url.fragment),
        ("query parameters", url.query_string),
    ):
        if given:
            found.invalid(path, given, f"{part} are not permitted in the URL")
