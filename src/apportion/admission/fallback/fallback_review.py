"""From a request of the API server to the response of fallback: which pods are concerned, and what is changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from apportion.admission import admission_review, json_diff, requests, slices, static_or_dynamic
from apportion.admission.admission_review import Question, ReviewAnswer
from apportion.admission.cluster_knowledge import ClusterKnowledge
from apportion.admission.fallback import decision_log, tier_replacement, tiers
from apportion.admission.fallback.deciding import Case, Decision, FallbackOutcome
from apportion.admission.fallback.decision_rounds import DecisionRounds
from apportion.admission.fallback.occupancy import without_volumes
from apportion.admission.fallback.tiers import FallbackOptions
from apportion.admission.large_reviews import LARGE_BYTES, LargeReviews
from apportion.admission.requests import Want
from apportion.admission.static_or_dynamic import Mechanism
from apportion.apis import kinds, names
from apportion.apis.errors import InputError, RequestError
from apportion.apis.noderules import NodeRules
from apportion.apis.pods import Pod, ResourceRequirements
from apportion.apis.request import Request
from apportion.apis.selectors import NodeSelector, NodeSelectorTerm, Requirement
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.view.requests import read

ROOT = "spec"
TEMPLATE_ROOT = "spec.template.spec"
TEMPLATES = {("batch", "Job"), ("apps", "Deployment")}
NAMESPACE_SECONDS = 2.0
"""How long a review waits for its namespace to be observed. Reviews of namespaces that do not exist are forged."""
MOST_REQUEST_BYTES = 128 * 1024
"""Of what is kept of a pod while it waits for its decision, and compared with every node."""


@dataclass
class _Subject:
    """A new pod that asks for MIG devices."""

    name: str
    profiles: list[str]
    options: FallbackOptions
    concerned: bool
    job: str = ""
    prepared: Case | InputError | None = None

    def case(self) -> Case:
        """Raises InputError for a pod that is not valid."""
        assert self.prepared is not None
        if isinstance(self.prepared, InputError):
            raise self.prepared
        return self.prepared


class FallbackReview:
    """Answers `/mutate-fallback`."""

    def __init__(
        self,
        client: Client,
        knowledge: ClusterKnowledge,
        rounds: DecisionRounds,
        default_tiers: Sequence[str],
        large: LargeReviews,
    ) -> None:
        self._client = client
        self._knowledge = knowledge
        self._rounds = rounds
        self._default_tiers = tuple(default_tiers)
        self._large = large

    async def answer(self, question: Question) -> ReviewAnswer:
        """Raises InputError for what is refused."""
        what = (question.kind.group, question.kind.kind)
        if question.sub_resource or (what != ("", "Pod") and what not in TEMPLATES):
            return admission_review.allowed(question.uid)
        if question.operation == "UPDATE" and what == ("", "Pod"):
            async with self._large.turn(question.size):
                return self._updated(question)
        if question.operation != "CREATE":
            return admission_review.allowed(question.uid)
        if what in TEMPLATES:
            async with self._large.turn(question.size):
                self._look_at_template(question)
            return admission_review.allowed(question.uid)
        return await self._created(question)

    async def _created(self, question: Question) -> ReviewAnswer:
        async with self._large.turn(question.size):
            subject = self._read(question)
        if subject is None:
            return admission_review.allowed(question.uid)
        name, job = subject.name, subject.job
        if subject.concerned and not await self._knowledge.knows_namespace(question.namespace, NAMESPACE_SECONDS):
            message = f"pod {name}: there is no namespace {question.namespace}, or it is very new; retry in a moment"
            return admission_review.later(question.uid, message)
        try:
            if job and await self._queued(question.namespace, job):
                return admission_review.allowed(question.uid)
        except errors.ClusterError as error:
            message = f"pod {name}: cannot determine whether Kueue admitted its Job {job} ({error}); retry in a moment"
            return admission_review.later(question.uid, message)
        decision_log.reviewing("pod", name)
        decision_log.requests("pod", name, subject.profiles)
        if not subject.concerned:
            return admission_review.allowed(question.uid)
        began = time.monotonic()
        decision = await self._rounds.ask(subject.case())
        async with self._large.turn(question.size):
            answer = _answer(question, name, subject.options, decision)
        decision_log.decided(
            {
                "pod": name,
                "wanted": "+".join(subject.profiles),
                "outcome": decision.outcome.value,
                "steps": decision.steps,
                "node": decision.node or "-",
                "dry_run": str(bool(question.dry_run)).lower(),
                "waited_ms": int(1000 * (time.monotonic() - began)),
            }
        )
        return answer

    def _read(self, question: Question) -> _Subject | None:
        """What there is to decide about a new pod; None if it concerns no MIG device, or nobody wants a decision."""
        pod = question.changeable()
        asked = [want for _, wants in tier_replacement.read(pod, ROOT) for want in wants]
        metadata = requests.mapping(pod.get("metadata"), "metadata")
        if not asked or self._left_alone(question, metadata):
            return None
        annotations = requests.mapping(metadata.get("annotations"), "metadata.annotations")
        facts = self._knowledge.facts_for(question.namespace)
        options = tiers.read(annotations, facts.namespace_annotations, self._default_tiers, facts.offers.static)
        slices.check(asked, facts.offers)
        concerned = self._concerns(asked, annotations, facts.namespace_annotations, options)
        subject = _Subject(_name(question, metadata), _profiles(asked), options, concerned)
        if concerned:
            subject.job = _job(metadata)
            try:
                subject.prepared = _case(question, metadata, asked, options)
            except InputError as error:  # a pod that Kueue has in its queue is left alone nevertheless
                subject.prepared = error
        return subject

    def _concerns(
        self,
        asked: Sequence[Want],
        annotations: Mapping[str, str],
        namespace: Mapping[str, str],
        options: FallbackOptions,
    ) -> bool:
        """Static devices always; dynamic slices only if fallback tiers are set on the pod or its namespace (D01)."""
        preferred = static_or_dynamic.preference(annotations, namespace)
        ours = slices.profiles_of(asked, ours=True)
        theirs = slices.profiles_of(asked, ours=False)
        decided = static_or_dynamic.decide(
            theirs, self._knowledge.offers, preferred=preferred, bound_to_dynamic=ours, tiers=options.tiers
        )
        if decided is Mechanism.static:
            return True
        return options.chosen and bool(ours) and not theirs

    def _left_alone(self, question: Question, metadata: Mapping[str, Any]) -> bool:
        """Opted out, or known to Kueue, whose quota was taken for what the pod asks for (F05, M04)."""
        labels = requests.mapping(metadata.get("labels"), "metadata.labels")
        namespace = self._knowledge.namespace_labels(question.namespace)
        if any(each.get(names.FALLBACK_OPT_OUT_LABEL) == names.FALLBACK_OPT_OUT for each in (labels, namespace)):
            return True
        notes = requests.mapping(metadata.get("annotations"), "metadata.annotations")
        return any(str(key).startswith(names.KUEUE_PREFIX) for key in (*labels, *notes))

    async def _queued(self, namespace: str, job: str) -> bool:
        """The pod's Job waits in a queue of Kueue, though the pod does not say so."""
        try:
            found = await self._client.get(kinds.JOBS, job, namespace=namespace)
        except errors.NotFound:
            return False
        return names.KUEUE_QUEUE_LABEL in (found["metadata"].get("labels") or {})

    def _updated(self, question: Question) -> ReviewAnswer:
        before, after = question.changeable(), question.changeable()
        tier_replacement.repeat(after, question.old_changeable(), ROOT)
        return admission_review.allowed(question.uid, json_diff.difference(before, after))

    def _look_at_template(self, question: Question) -> None:
        """Logged, never changed: the pods are decided when they come."""
        obj = question.changeable()
        template = requests.mapping(requests.mapping(obj.get("spec"), "spec").get("template"), "spec.template")
        asked = [want for _, wants in tier_replacement.read(template, TEMPLATE_ROOT) for want in wants]
        name = _name(question, requests.mapping(obj.get("metadata"), "metadata"))
        decision_log.reviewing(question.kind.kind, name)
        if asked:
            decision_log.requests(question.kind.kind, name, _profiles(asked))
            decision_log.template(question.kind.kind, name)


def _answer(question: Question, name: str, options: FallbackOptions, decision: Decision) -> ReviewAnswer:
    if decision.outcome is FallbackOutcome.RETRY:
        trouble = decision.trouble or (
            "devices are promised to pods that have not been observed yet, so it is not known whether this pod must "
            "fall back"
        )
        return admission_review.later(question.uid, f"pod {name}: {trouble}; retry in a moment")
    before, after = question.changeable(), question.changeable()
    taken = tier_replacement.step(after, ROOT, options, decision.steps)
    if decision.outcome is FallbackOutcome.REJECT:
        raise RequestError(
            f"metadata.annotations[{names.FALLBACK_AT_END}]",
            tiers.REJECT,
            f"no tier is available ({taken or 'the requested profile is the last tier'}); retry later, "
            f"or set {tiers.PEND} to keep the pod pending",
            code="NoTierFree",
        )
    if not taken:
        return admission_review.allowed(question.uid)
    decision_log.falls(name, taken)
    if not question.dry_run:
        decision_log.applied(name)
    return admission_review.allowed(question.uid, json_diff.difference(before, after))


def _case(question: Question, metadata: Mapping[str, Any], asked: Sequence[Want], options: FallbackOptions) -> Case:
    known: dict[int, Request] = {}

    def request(steps: int) -> Request:
        if steps not in known:
            known[steps] = _request(question, options, steps)
        return known[steps]

    case = Case(
        id=question.uid,
        namespace=question.namespace,
        request=request,
        steps=tier_replacement.most_steps([want.profile for want in asked], options.tiers),
        options=options,
        generate_name=str(metadata.get("generateName") or ""),
        dry_run=bool(question.dry_run),
    )
    request(0)  # invalid requests are refused before anything waits for them
    if question.size > LARGE_BYTES:  # all at once: decisions have no time to decode it again
        for steps in range(1, case.steps + 1):
            request(steps)
    return case


def _request(question: Question, options: FallbackOptions, steps: int) -> Request:
    body = question.changeable()
    tier_replacement.step(body, ROOT, options, steps)
    try:
        pod = msgspec.json.decode(question.object, type=Pod)
        _take_over(pod, body)
    except msgspec.ValidationError as error:
        raise RequestError("pod", question.name or "(no name yet)", f"is invalid: {error}") from None
    pod.metadata.namespace = question.namespace
    pod.metadata.uid = f"review/{question.uid}"
    asked, problem = read(pod)
    if asked is None:
        assert problem is not None
        raise problem
    request = without_volumes(asked)
    if len(msgspec.json.encode(request)) > MOST_REQUEST_BYTES:
        raise RequestError(
            "pod",
            question.name or "(no name yet)",
            f"its labels, requests and scheduling rules have more than {MOST_REQUEST_BYTES} bytes; use fewer",
            code="TooManyRules",
        )
    return msgspec.structs.replace(request, rules=_narrowed(request.rules, options))


def _take_over(pod: Pod, body: Mapping[str, Any]) -> None:
    """Give the containers of a typed pod the resources that they have in its JSON."""
    spec = requests.mapping(body.get("spec"), ROOT)
    for key, containers in (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers)):
        for container, changed in zip(containers, spec.get(key) or (), strict=True):
            if "resources" in changed:
                container.resources = msgspec.convert(changed["resources"], ResourceRequirements)


def _narrowed(rules: NodeRules, options: FallbackOptions) -> NodeRules:
    """The pod's own rules about nodes, and the hints."""
    selector = tuple(dict.fromkeys((*rules.selector, *options.nodes)))
    required = rules.required
    if options.products:
        product = Requirement(key=names.GPU_PRODUCT_LABEL, operator="In", values=options.products)
        terms = required.node_selector_terms if required is not None else (NodeSelectorTerm(),)
        required = NodeSelector(
            node_selector_terms=tuple(
                msgspec.structs.replace(term, match_expressions=(*term.match_expressions, product)) for term in terms
            )
        )
    return msgspec.structs.replace(rules, selector=selector, required=required)


def _job(metadata: Mapping[str, Any]) -> str:
    """The name of the Job that made the pod, empty if none did."""
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else []:
        if isinstance(owner, dict) and owner.get("kind") == "Job" and owner.get("controller") and owner.get("name"):
            return str(owner["name"])
    return ""


def _profiles(asked: Sequence[Want]) -> list[str]:
    return list(dict.fromkeys(want.profile for want in asked))


def _name(question: Question, metadata: Mapping[str, Any]) -> str:
    name = question.name or metadata.get("name") or metadata.get("generateName") or "?"
    return f"{question.namespace}/{name}"
