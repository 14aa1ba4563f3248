"""Chapters that change: create, apply, patch, replace, edit, label, annotate, diff, scale."""

from __future__ import annotations

import copy
import json

import yaml

from tests.kubectl import samples
from tests.kubectl.session import KubectlSession


def create_makes_what_its_generators_know(tell: KubectlSession) -> None:
    tell("create", "namespace", "kubectl-other")
    tell("create", "namespace", "kubectl-other", fails=True)
    tell("delete", "namespace", "kubectl-other", "--wait=false")
    (tell.folder / "file.txt").write_text("some text\n")
    tell("create", "configmap", "settings", "--from-literal=a=1", "--from-file=file.txt")
    tell("create", "secret", "generic", "password", "--from-literal=word=open sesame")
    tell("create", "secret", "tls", "absent", "--cert=absent", "--key=absent", fails=True)
    tell("create", "deployment", "web", f"--image={samples.IMAGE}", "--replicas=1", "--", "sleep", "1000")
    tell("create", "job", "hello", f"--image={samples.IMAGE}", "--", "echo", "hello")
    tell("create", "cronjob", "nightly", f"--image={samples.IMAGE}", "--schedule=0 3 * * *")
    tell("create", "job", "early", "--from=cronjob/nightly")
    tell("create", "serviceaccount", "robot")
    tell("create", "service", "clusterip", "web", "--tcp=80:8080")
    tell("create", "quota", "limits", "--hard=pods=20")
    tell("create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=1")
    tell("create", "priorityclass", "kubectl-high", "--value=10", "--dry-run=server")
    tell("create", "clusterrole", "kubectl-role", "--verb=get", "--resource=pods", "--dry-run=server", "-o", "name")
    tell("expose", "deployment", "web", "--name=exposed", "--port=80")
    tell("run", "bare", f"--image={samples.IMAGE}", "--restart=Never", "--", "true")
    tell("set", "image", "deployment/web", "busybox=busybox:1.35")
    tell("set", "env", "deployment/web", "COLOUR=red")
    tell("set", "env", "deployment/web", "--list")
    tell("set", "resources", "deployment/web", "--limits=cpu=1,memory=64Mi")
    tell("autoscale", "deployment", "web", "--max=3", "--dry-run=client", "-o", "name")
    for kind in ("configmap/settings", "secret/password", "cronjob/nightly", "serviceaccount/robot", "pdb/web"):
        tell("get", kind)
    tell("get", "secret", "password", "-o", "yaml")
    tell("describe", "secret", "password")
    tell("describe", "configmap", "settings")
    tell("describe", "cronjob", "nightly")
    tell("get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0]}")


def apply_on_the_client_side(tell: KubectlSession) -> None:
    thing = samples.config_map("thing", colour="red", size="10")
    tell.apply(thing)
    tell.apply(thing)
    changed = copy.deepcopy(thing)
    changed["data"] = {"colour": "blue"}
    tell("diff", "-f", "-", input=yaml.safe_dump(changed), fails=True)
    tell.apply(changed)
    tell("diff", "-f", "-", input=yaml.safe_dump(changed))
    assert json.loads(tell("get", "configmap", "thing", "-o", "jsonpath={.data}")) == {"colour": "blue"}
    web = samples.deployment("web", replicas=0)
    container = web["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    tell.apply(web)
    container["env"] = [{"name": "B", "value": "3"}]
    del container["resources"]["limits"]
    tell.apply(web)
    tell("get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0]}")
    web["spec"]["selector"]["matchLabels"]["app"] = "other"
    tell("apply", "-f", "-", input=yaml.safe_dump(web), fails=True)
    tell("apply", "-f", "-", input=yaml.safe_dump(web | {"spec": {"replicas": 1}}), fails=True)
    misspelt = copy.deepcopy(thing) | {"dta": {"a": "b"}}
    tell("apply", "-f", "-", input=yaml.safe_dump(misspelt), fails=True)
    tell("apply", "--validate=warn", "-f", "-", input=yaml.safe_dump(misspelt))
    tell("apply", "view-last-applied", "configmap/thing")
    tell("create", "configmap", "made", "--from-literal=a=1")
    tell.apply(samples.config_map("made", b="2"))
    tell("get", "configmap", "made", "-o", "jsonpath={.data}")
    tell("apply", "-f", "-", "--dry-run=server", "-o", "name", input=yaml.safe_dump(samples.config_map("dry")))
    tell("get", "configmap", "dry", fails=True)
    kept = yaml.safe_dump(_labelled("kept"))
    tell("apply", "--prune", "--prune-allowlist=core/v1/ConfigMap", "-l", "app=x", "-f", "-", input=kept)
    other = yaml.safe_dump(_labelled("other"))
    tell("apply", "--prune", "--prune-allowlist=core/v1/ConfigMap", "-l", "app=x", "-f", "-", input=other)


def apply_on_the_server_side(tell: KubectlSession) -> None:
    tell.apply(samples.config_map("shared", colour="red", size="10"), server_side=True)
    other = yaml.safe_dump(samples.config_map("shared", colour="blue"))
    tell("apply", "--server-side", "--field-manager=other", "-f", "-", input=other, fails=True)
    tell("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", input=other)
    tell.apply(samples.config_map("shared", size="11"), server_side=True)
    assert json.loads(tell("get", "configmap", "shared", "-o", "jsonpath={.data}")) == {"colour": "blue", "size": "11"}
    # One by one: their order depends on whether a second passed in between.
    for manager in ("kubectl", "other"):
        fields = f'{{.metadata.managedFields[?(@.manager=="{manager}")].fieldsV1}}'
        tell("get", "configmap", "shared", "-o", f"jsonpath={fields}")
    tell("diff", "--server-side", "-f", "-", input=yaml.safe_dump(samples.config_map("shared", size="12")), fails=True)
    web = samples.deployment("web", replicas=0)
    tell.apply(web, server_side=True)
    tell("scale", "deployment/web", "--replicas=1")
    tell("apply", "--server-side", "-f", "-", input=yaml.safe_dump(web), fails=True)
    del web["spec"]["replicas"]
    container = web["spec"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 9090}]
    tell.apply(web, server_side=True)
    tell("get", "deployment", "web", "-o", "jsonpath={.spec.replicas} {.spec.template.spec.containers[0].ports}")
    # An object that client-side apply made moves over to the server side.
    tell.apply(samples.config_map("moved", a="1", b="2"))
    tell.apply(samples.config_map("moved", a="1"), server_side=True)
    tell("get", "configmap", "moved", "-o", "jsonpath={.data}")


def patch_in_three_ways(tell: KubectlSession) -> None:
    tell.apply(samples.deployment("web", replicas=0))
    containers = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox:1.35"}]}}}}
    tell("patch", "deployment", "web", "-p", json.dumps(containers))
    tell("get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[*].name}")
    removal = {"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}
    tell("patch", "deployment", "web", "--type=strategic", "-p", json.dumps(removal))
    tell("get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[*].name}")
    tell("patch", "deployment", "web", "--type=merge", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    tell("patch", "deployment", "web", "--type=merge", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    tell("patch", "deployment", "web", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/a"}]')
    tell("patch", "deployment", "web", "--type=json", "-p", '[{"op":"remove","path":"/metadata/none"}]', fails=True)
    tell("patch", "deployment", "web", "--type=json", "-p", '[{"op":"test","path":"/kind","value":"x"}]', fails=True)
    tell("patch", "deployment", "web", "-p", '{"spec":{"replicas":"many"}}', fails=True)
    tell("patch", "deployment", "web", "--subresource=scale", "--type=merge", "-p", '{"spec":{"replicas":2}}')
    tell("get", "deployment", "web", "--subresource=scale", "-o", "jsonpath={.kind} {.spec.replicas}")
    tell("get", "deployment", "web", "--subresource=status", "-o", "name")
    tell("patch", "deployment", "absent", "-p", "{}", fails=True)


def replace_edit_label_and_annotate(tell: KubectlSession) -> None:
    tell("create", "configmap", "thing", "--from-literal=colour=red")
    tell("replace", "-f", "-", input=yaml.safe_dump(samples.config_map("thing", colour="blue")))
    stale = samples.config_map("thing", colour="green")
    stale["metadata"]["resourceVersion"] = "1"
    tell("replace", "-f", "-", input=yaml.safe_dump(stale), fails=True)
    tell("replace", "-f", "-", input=yaml.safe_dump(samples.config_map("absent")), fails=True)
    tell("replace", "--force", "-f", "-", input=yaml.safe_dump(samples.config_map("thing", colour="white")))
    tell("edit", "configmap", "thing", editor="sed -i s/white/black/")
    tell("get", "configmap", "thing", "-o", "jsonpath={.data.colour}")
    tell("edit", "configmap", "thing", editor="true")
    tell("label", "configmap", "thing", "team=red")
    tell("label", "configmap", "thing", "team=blue", fails=True)
    tell("label", "configmap", "thing", "team=blue", "--overwrite")
    tell("label", "configmap", "thing", "team-")
    tell("label", "configmap", "thing", "bad key=1", fails=True)
    tell("label", "configmap", "thing", "key=-bad-", fails=True)
    tell("label", "configmaps", "--all", "all=yes")
    tell("label", "configmap", "thing", "--list")
    tell("annotate", "configmap", "thing", "note=hello")
    tell("annotate", "configmap", "thing", "note-")
    tell("annotate", "configmaps", "-l", "all=yes", "by=selector")
    tell("create", "configmap", "Bad_Name", fails=True)
    tell("get", "configmap", "thing", "-o", "yaml")


def refusals_name_the_field(tell: KubectlSession) -> None:
    bad = samples.pod("bad")
    bad["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "lots"}}
    tell("apply", "-f", "-", input=yaml.safe_dump(bad), fails=True)
    bad["spec"]["containers"][0] = {"name": "Main", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
    tell("apply", "-f", "-", input=yaml.safe_dump(bad), fails=True)
    tell("apply", "-f", "-", input=yaml.safe_dump(samples.pod("bad", restartPolicy="Sometimes")), fails=True)
    tell("apply", "-f", "-", input=yaml.safe_dump(samples.service("web", ports=[{"port": 0}])), fails=True)
    tell("apply", "-f", "-", input=yaml.safe_dump(samples.job("once", "true", parallelism=-1)), fails=True)
    tell("apply", "-f", "-", input="kind: Unheard\napiVersion: example.io/v1\nmetadata: {name: a}\n", fails=True)
    tell("apply", "-f", "-", input="kind: Pod\napiVersion: v1\nmetadata: {}\n", fails=True)
    tell.apply(samples.pod("fixed"))
    # Both say what changed, each in its own words.
    said = tell.refused("patch", "pod", "fixed", "-p", '{"spec":{"restartPolicy":"Never"}}')
    assert "pod updates may not change fields other than" in said
    tell("create", "-f", "-", input=yaml.safe_dump(samples.pod("fixed")), fails=True)
    tell("scale", "deployment/absent", "--replicas=1", fails=True)
    tell("rollout", "status", "deployment/absent", fails=True)
    tell("logs", "fixed")
    tell("logs", "absent", fails=True)


def _labelled(name: str) -> dict[str, object]:
    made = samples.config_map(name, a="1")
    made["metadata"]["labels"] = {"app": "x"}
    return made
