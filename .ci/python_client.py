"""Kubernetes' own Python client against an embedded API server: what its users do first.

Run by .ci/python-client. KUBECONFIG says where the server is.
"""

import base64
import datetime
import sys
import threading
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException


NS = "python-client"


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"python client: {what}: got {got!r}, wanted {wanted!r}")


def refused(status, reason, call):
    """The error a call ends with."""
    try:
        call()
    except ApiException as e:
        expect("status", (e.status, reason in e.body), (status, True))
        return e
    sys.exit(f"python client: not refused with {status} {reason}")


def until(what, seconds, check):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.1)
    sys.exit(f"python client: {what}: not within {seconds} s")


def core_objects(core):
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NS)))
    body = client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name="settings", labels={"app": "smoke"}),
        data={"a": "1"},
        binary_data={"b": base64.b64encode(b"\x00\xff").decode()},
    )
    made = core.create_namespaced_config_map(NS, body, field_manager="smoke")
    expect("uid", bool(made.metadata.uid), True)
    expect("created", isinstance(made.metadata.creation_timestamp, datetime.datetime), True)
    refused(409, "AlreadyExists", lambda: core.create_namespaced_config_map(NS, body))
    patched = core.patch_namespaced_config_map("settings", NS, {"data": {"a": None, "c": "3"}})
    expect("merge patch", patched.data, {"c": "3"})
    stale = client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name="settings", resource_version=made.metadata.resource_version)
    )
    refused(409, "Conflict", lambda: core.replace_namespaced_config_map("settings", NS, stale))
    for i in range(7):
        meta = client.V1ObjectMeta(generate_name="page-", labels={"page": "yes"})
        core.create_namespaced_config_map(NS, client.V1ConfigMap(metadata=meta))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(NS, label_selector="page=yes", limit=3, _continue=token)
        names += [o.metadata.name for o in page.items]
        token = page.metadata._continue
        if not token:
            break
    expect("paged list", len(set(names)), 7)
    core.delete_collection_namespaced_config_map(NS, label_selector="page=yes")
    left = core.list_namespaced_config_map(NS, label_selector="page=yes")
    expect("after delete collection", left.items, [])
    refused(404, "NotFound", lambda: core.read_namespaced_config_map("page-0", NS))
    bad = {"metadata": {"name": "bad"}, "spec": {"containers": []}}
    refused(422, "spec.containers", lambda: core.create_namespaced_pod(NS, bad))


def queues(api):
    """Kueue's kinds through the dynamic client."""
    dyn = dynamic.DynamicClient(api)
    kind = {k: dyn.resources.get(api_version="kueue.x-k8s.io/v1beta2", kind=k) for k in
            ("ResourceFlavor", "ClusterQueue", "LocalQueue", "Workload")}
    kind["ResourceFlavor"].create({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
                                   "metadata": {"name": "smoke"}})
    covered = ["cpu", "memory", "pods"]
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    kind["ClusterQueue"].create({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "smoke"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": covered, "flavors": [
            {"name": "smoke", "resources": [{"name": r, "nominalQuota": amounts[r]} for r in covered]}]}]},
    })
    applied = kind["LocalQueue"].server_side_apply(
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
         "metadata": {"name": "queue", "namespace": NS}, "spec": {"clusterQueue": "smoke"}},
        namespace=NS, name="queue", field_manager="smoke")
    expect("apply", applied.spec.clusterQueue, "smoke")
    return kind


def job(core, batch, kind):
    container = client.V1Container(
        name="main", image="busybox", command=["sleep", "1"],
        resources=client.V1ResourceRequirements(requests={"cpu": "1", "memory": "64Mi"}))
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(restart_policy="Never", containers=[container]))
    body = client.V1Job(
        metadata=client.V1ObjectMeta(name="work", labels={"kueue.x-k8s.io/queue-name": "queue"}),
        spec=client.V1JobSpec(parallelism=2, completions=2, suspend=True, template=template))

    phases, seen = set(), threading.Event()

    def follow():
        for event in watch.Watch().stream(core.list_namespaced_pod, NS, timeout_seconds=30):
            phases.add(event["object"].status.phase)
            if "Succeeded" in phases:
                seen.set()
                return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    batch.create_namespaced_job(NS, body)
    done = lambda: (batch.read_namespaced_job_status("work", NS).status.succeeded or 0) == 2
    until("job", 60, done)
    expect("a watch saw the pod end", seen.wait(10), True)
    finished = lambda: any(
        c.type == "Finished" and c.status == "True"
        for w in kind["Workload"].get(namespace=NS).items for c in (w.status.conditions or []))
    until("workload", 20, finished)
    pod = core.list_namespaced_pod(NS, field_selector="status.phase=Succeeded").items[0]
    expect("bound", bool(pod.spec.node_name), True)
    expect("logs", bool(core.read_namespaced_pod_log(pod.metadata.name, NS)), True)
    batch.delete_namespaced_job("work", NS, propagation_policy="Foreground")
    until("pods gone", 20, lambda: not core.list_namespaced_pod(NS).items)


def reviews(api):
    auth = client.AuthorizationV1Api(api)
    spec = client.V1SelfSubjectAccessReviewSpec(
        resource_attributes=client.V1ResourceAttributes(verb="create", resource="pods", namespace=NS))
    review = auth.create_self_subject_access_review(client.V1SelfSubjectAccessReview(spec=spec))
    expect("may create pods", review.status.allowed, True)
    expect("version", client.VersionApi(api).get_code().major, "1")
    groups = [g.name for g in client.ApisApi(api).get_api_versions().groups]
    expect("groups", {"apps", "batch", "kueue.x-k8s.io"} <= set(groups), True)


def main():
    config.load_kube_config()
    api = client.ApiClient()
    core, batch = client.CoreV1Api(api), client.BatchV1Api(api)
    core_objects(core)
    kind = queues(api)
    job(core, batch, kind)
    reviews(api)
    core.delete_namespace(NS)
    gone = lambda: NS not in [n.metadata.name for n in core.list_namespace().items]
    until("namespace gone", 30, gone)
    print("python client: ok")


main()
