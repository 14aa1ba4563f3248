"""A long story told with kubectl, one command after the other; what is random in its output is masked."""

from __future__ import annotations

import re

NAMESPACE = "kubectl-story"

MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: "nginx:1", env: [{name: A, value: b}, {name: C, value: d}], resources: {limits: {cpu: 500m}}}
      - {name: side, image: busybox}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cm}
data: {a: b, c: d}
"""
CHANGED = (
    MANIFEST.replace("nginx:1", "nginx:2")
    .replace(", {name: C, value: d}", "")
    .replace("      - {name: side, image: busybox}\n", "")
    .replace(", c: d", "")
)


def pod(rest: str) -> str:
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: bad}}\nspec: {rest}\n"


Command = tuple[str, str | None]
"""The command line behind `kubectl -n NAMESPACE`, and what it reads."""

STORY: tuple[Command, ...] = (
    ("apply -f -", MANIFEST),
    ("apply -f -", MANIFEST),
    ("diff -f -", CHANGED),
    ("apply -f -", CHANGED),
    ("get deploy web -o jsonpath={.spec.template.spec.containers}", None),
    ("get cm cm -o jsonpath={.data}", None),
    ("apply --server-side -f -", MANIFEST),
    ("apply --server-side --field-manager=other -f -", CHANGED),
    ("apply --server-side --force-conflicts --field-manager=other -f -", CHANGED),
    ("create deployment dd --image=i --replicas=0 --port=80", None),
    ("create job jj --image=i -- sleep 1", None),
    ("create cronjob cj --image=i --schedule=@yearly", None),
    ("create secret generic ss --from-literal=a=b", None),
    ("create cm c2 --from-literal=x=y", None),
    ("create role rr --verb=get --resource=pods", None),
    ("create rolebinding rb --role=rr --user=u", None),
    ("create pdb pp --selector=a=b --min-available=1", None),
    ("create sa robot", None),
    ("create ingress ii --rule=a.b/c=web:80", None),
    ('run p1 --image=i --labels=a=b --overrides={"spec":{"schedulerName":"nobody"}}', None),
    ("expose deployment dd", None),
    ("get deploy,job,secret,cronjob,role,rolebinding,pdb,svc -o name", None),
    ("label deploy web x=y", None),
    ("label deploy web x=z", None),
    ("annotate deploy web note=hi", None),
    ("annotate deploy web note-", None),
    ('patch deploy web -p {"spec":{"revisionHistoryLimit":5}}', None),
    ('patch deploy web --type=merge -p {"metadata":{"labels":{"m":"1"}}}', None),
    ('patch deploy web --type=json -p [{"op":"add","path":"/spec/paused","value":true}]', None),
    ("scale deploy dd --replicas=0", None),
    ("set image deploy/web c=nginx:3", None),
    ("set env deploy/web Z=1", None),
    ("set resources deploy/web -c=c --limits=memory=1Gi", None),
    ("rollout pause deploy/dd", None),
    ("rollout resume deploy/dd", None),
    ("autoscale deploy web --max=3", None),
    ("create -f -", pod("{containers: [{name: c, image: i, foo: 1}], bar: 2}")),
    ("create --validate=warn --dry-run=server -f -", pod("{containers: [{name: c, image: i}], bar: 2}")),
    ("apply -f -", pod("{containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 0.5}}}]}")),
    ("apply -f -", pod('{containers: [{name: c, image: i, ports: [{containerPort: "x"}]}]}')),
    ("apply -f -", pod("{containers: []}")),
    ("apply -f -", "apiVersion: foo/v1\nkind: Nothing\nmetadata: {name: bad}\n"),
    ("replace -f -", MANIFEST),
    ("get pod p1 -o custom-columns=N:.metadata.name,I:.spec.containers[*].image", None),
    ("get cm -l none=such", None),
    ("get nothing", None),
    ("get pod none", None),
    ("get cm c2 -o yaml --show-managed-fields=false", None),
    ("get svc web -o go-template={{.spec.type}}", None),
    ("get deploy --field-selector=metadata.name=web -o name", None),
    ("get deploy --field-selector=spec.nothing=web -o name", None),
    ("get cm -l bad==selector==x", None),
    ("describe cm cm", None),
    ("describe role rr", None),
    ("describe rolebinding rb", None),
    ("describe secret ss", None),
    ("auth can-i create pods", None),
    ("auth can-i delete nodes --as=bob", None),
    ("auth can-i get pods --as=u", None),
    ("auth can-i --list --as=u", None),
    ("auth whoami -o jsonpath={.status.userInfo.groups}", None),
    ("explain cm --recursive", None),
    ("explain nothing", None),
    ("delete cm c2", None),
    ("delete cm none", None),
    ("delete deploy,svc --all", None),
    ("delete pod p1 --grace-period=0 --force", None),
)

_MASKS = (
    (re.compile(r"(LIVE|MERGED)-[0-9]+"), r"\1"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}"), "<uid>"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+( \+0000|Z)?( [A-Z]+)?"), "<time>"),
    (re.compile(r'resourceVersion: "[0-9]+"'), "resourceVersion: <version>"),
)


def masked(text: str) -> str:
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text
