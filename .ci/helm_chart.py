"""deploy/chart as Helm renders it, beside what `plimsoll install` prints for the same options."""

import json
import pathlib
import subprocess
import sys
import tempfile

import helm_python as helm
import yaml

CHART = "deploy/chart"
KUEUE = """# A comment stays.
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: ["batch/job", "pod"]
"""
SCHEDULER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
KEEP = {"helm.sh/resource-policy": "keep"}
IMAGE = {"image": {"repository": "example.com/plimsoll", "tag": "2"}}

# Values of the chart, flags of `plimsoll install`, the namespace.
CASES = [
    ({}, [], "plimsoll-system"),
    ({}, [], "batch"),
    ({"controllerManager": {"replicas": 3, "manager": IMAGE}}, ["--replicas=3", "--image=example.com/plimsoll:2"], "batch"),
    ({"controllerManager": {"replicas": 1}}, ["--replicas=1"], "plimsoll-system"),
    ({"controllerManager": {"nodes": ["cp-1"]}}, ["--node=cp-1"], "plimsoll-system"),
    ({"controllerManager": {"nodes": ["cp-1", "cp-2"]}}, ["--node=cp-1", "--node=cp-2"], "batch"),
    ({"controllerManager": {"shards": ["default", "research"]}}, ["--shards=default,research"], "plimsoll-system"),
    (
        {"controllerManager": {"shards": ["7", "default"], "nodes": ["cp-1", "cp-2"]}, "roles": {"placement": False}},
        ["--shards=7,default", "--node=cp-1", "--node=cp-2", "--queueing"],
        "batch",
    ),
    ({"controllerManager": {"shards": ["default"], "replicas": 1}}, ["--shards=default", "--replicas=1"], "batch"),
    ({"roles": {"placement": False}}, ["--queueing"], "plimsoll-system"),
    ({"roles": {"queueing": False}}, ["--placement"], "batch"),
    ({"webhooks": {"failurePolicy": "Ignore"}}, ["--failure-policy=Ignore"], "batch"),
    ({"managerConfig": {"controllerManagerConfigYaml": KUEUE}}, ["--config=KUEUE"], "plimsoll-system"),
    ({"managerConfig": {"schedulerConfigYaml": SCHEDULER}}, ["--scheduler-config=SCHEDULER"], "plimsoll-system"),
    (
        {"managerConfig": {"controllerManagerConfigYaml": KUEUE, "schedulerConfigYaml": SCHEDULER},
         "roles": {"placement": True}, "controllerManager": {"nodes": ["cp-1", "cp-2"], "manager": IMAGE}},
        ["--config=KUEUE", "--scheduler-config=SCHEDULER", "--node=cp-1", "--node=cp-2", "--image=example.com/plimsoll:2"],
        "team-a",
    ),
]

# Values that are refused, and the name that the error has.
REFUSED = [
    ({"enableKueueViz": True}, "enableKueueViz"),
    ({"controllerManager": {"replicas": 0}}, "replicas"),
    ({"controllerManager": {"featureGates": []}}, "featureGates"),
    ({"controllerManager": {"shards": ["research"]}}, "shards"),
    ({"controllerManager": {"shards": ["default", "A"]}}, "shards"),
    ({"controllerManager": {"shards": ["default", "default"]}}, "shards"),
    ({"controllerManager": {"shards": ["default"]}, "roles": {"queueing": False}}, "queueing"),
    ({"webhooks": {"failurePolicy": "Maybe"}}, "failurePolicy"),
    ({"roles": {"queueing": False, "placement": False}}, "roles"),
]


def key(o):
    return o["apiVersion"], o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]


def rendered(chart, values, namespace):
    texts = chart.render(values, name="any", namespace=namespace)
    objects = {}
    for file, text in texts.items():
        if file.endswith("NOTES.txt"):
            continue
        for o in yaml.safe_load_all(text):
            if o:
                assert key(o) not in objects, key(o)
                objects[key(o)] = o
    return objects


def installed(plimsoll, flags, namespace, files):
    flags = [f.replace("KUEUE", str(files / "kueue")).replace("SCHEDULER", str(files / "scheduler")) for f in flags]
    command = [plimsoll, "install", "--output=json", f"--namespace={namespace}", *flags]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    objects = {key(o): o for o in json.loads(out)["items"]}
    # `helm install --create-namespace` makes it.
    del objects["v1", "Namespace", "", namespace]
    for o in objects.values():
        if o["kind"] == "CustomResourceDefinition":
            o["metadata"].setdefault("annotations", {}).update(KEEP)
    return objects


def compare(chart, plimsoll, case, files):
    values, flags, namespace = case
    ours, theirs = installed(plimsoll, flags, namespace, files), rendered(chart, values, namespace)
    for k in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(k), theirs.get(k)
        if a != b:
            sys.exit(f"{flags} in {namespace}: {k} differs\ninstall: {json.dumps(a)[:4000]}\nchart:   {json.dumps(b)[:4000]}")
    return len(ours)


def main(plimsoll):
    found = helm.lint(CHART)["messages"]
    found = [m for m in found if m["error"] != "icon is recommended"]
    assert not found, found
    with tempfile.TemporaryDirectory() as directory, helm.Chart.load(CHART) as chart:
        files = pathlib.Path(directory)
        (files / "kueue").write_text(KUEUE)
        (files / "scheduler").write_text(SCHEDULER)
        objects = sum(compare(chart, plimsoll, case, files) for case in CASES)
        for values, name in REFUSED:
            try:
                chart.validate_schema(values)
            except helm.HelmValuesError as error:
                assert name in str(error), error
            else:
                sys.exit(f"{values} is not refused")
        # What install has no flag for, where it belongs in the pod template.
        values = {"controllerManager": {"nodeSelector": {"a": "b"}, "imagePullSecrets": [{"name": "s"}],
                  "manager": {"podAnnotations": {"x": "y"}, "priorityClassName": None}}, "enableVisibilityAPF": True}
        chart.validate_schema(values)
        all = rendered(chart, values, "plimsoll-system")
        template = all["apps/v1", "Deployment", "plimsoll-system", "plimsoll"]["spec"]["template"]
        assert template["metadata"]["annotations"] == {"x": "y"}, template
        spec = template["spec"]
        assert spec["nodeSelector"] == {"a": "b"} and spec["imagePullSecrets"] == [{"name": "s"}], spec
        assert "priorityClassName" not in spec, spec
        assert ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "", "plimsoll-visibility") in all
        # A packaged chart has the files behind its links.
        with helm.Chart.load(chart.save(directory)) as packed:
            assert rendered(packed, {}, "batch") == rendered(chart, {}, "batch")
    print(f"helm chart: {len(CASES)} combinations of values, {objects} objects as `plimsoll install` prints them")


main(sys.argv[1])
