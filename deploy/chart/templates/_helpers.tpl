{{/*
A manifest of deploy/, moved into the namespace of the release.
*/}}
{{- define "plimsoll.manifest" -}}
{{- .root.Files.Get .file | replace "namespace: plimsoll-system" (printf "namespace: %s" .root.Release.Namespace) }}
{{- end }}

{{/*
A Deployment or PodDisruptionBudget of a shard, as JSON: `of_shard` of `plimsoll install`.
*/}}
{{- define "plimsoll.ofShard" -}}
{{- $object := .object }}
{{- if .shard }}
{{- $label := dict "plimsoll.dev/shard" .shard }}
{{- $_ := set $object.metadata "name" (printf "plimsoll-%s" .shard) }}
{{- $_ := merge $object.spec.selector.matchLabels $label }}
{{- if eq $object.kind "Deployment" }}
{{- $template := $object.spec.template }}
{{- $_ := merge $template.metadata.labels $label }}
{{- range $template.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution }}
{{- $_ := merge .podAffinityTerm.labelSelector.matchLabels $label }}
{{- end }}
{{- $container := index $template.spec.containers 0 }}
{{- $command := list }}
{{- range $container.command }}
{{- if not (hasPrefix "--visibility-" .) }}
{{- $command = append $command . }}
{{- end }}
{{- end }}
{{- $_ := set $container "command" (append $command (printf "--shard=%s" .shard)) }}
{{- $ports := list }}
{{- range $container.ports }}
{{- if ne .name "visibility" }}
{{- $ports = append $ports . }}
{{- end }}
{{- end }}
{{- $_ := set $container "ports" $ports }}
{{- end }}
{{- end }}
{{- toJson $object }}
{{- end }}

{{/*
The configuration files by name: as `plimsoll install` names them.
*/}}
{{- define "plimsoll.files" -}}
{{- with .Values.managerConfig.controllerManagerConfigYaml }}
controller_manager_config.yaml: {{ toJson . }}
{{- end }}
{{- with .Values.managerConfig.schedulerConfigYaml }}
scheduler_config.yaml: {{ toJson . }}
{{- end }}
{{- end }}

{{/*
The Deployment of deploy/deployment.yaml with the values, as JSON.
*/}}
{{- define "plimsoll.deployment" -}}
{{- $manager := .Values.controllerManager.manager }}
{{- $files := include "plimsoll.files" . | fromYaml }}
{{- $deployment := include "plimsoll.manifest" (dict "root" . "file" "files/deployment.yaml") | fromYaml }}
{{- $_ := set $deployment.spec "replicas" .Values.controllerManager.replicas }}
{{- $template := $deployment.spec.template }}
{{- $spec := $template.spec }}
{{- $container := index $spec.containers 0 }}
{{- $command := $container.command }}
{{- if not .Values.roles.placement }}
{{- $command = append $command "--queueing" }}
{{- else if not .Values.roles.queueing }}
{{- $kept := list }}
{{- range $command }}
{{- if not (or (hasPrefix "--webhook-" .) (hasPrefix "--conversion-" .) (hasPrefix "--visibility-" .)) }}
{{- $kept = append $kept . }}
{{- end }}
{{- end }}
{{- $command = append $kept "--placement" }}
{{- $ports := list }}
{{- range $container.ports }}
{{- if eq .name "metrics" }}
{{- $ports = append $ports . }}
{{- end }}
{{- end }}
{{- $_ := set $container "ports" $ports }}
{{- end }}
{{- $annotations := deepCopy $manager.podAnnotations }}
{{- if $files }}
{{- $text := "" }}
{{- range $name, $file := $files }}
{{- $text = printf "%s%s\n%s\n" $text $name $file }}
{{- end }}
{{- $_ := set $annotations "plimsoll.dev/config-hash" (sha256sum $text) }}
{{- $_ := set $spec "volumes" (list (dict "name" "config" "configMap" (dict "name" "plimsoll-manager-config"))) }}
{{- $mount := dict "name" "config" "mountPath" "/etc/plimsoll" "readOnly" true }}
{{- $_ := set $container "volumeMounts" (list $mount) }}
{{- if hasKey $files "controller_manager_config.yaml" }}
{{- $command = append $command "--config=/etc/plimsoll/controller_manager_config.yaml" }}
{{- end }}
{{- if hasKey $files "scheduler_config.yaml" }}
{{- $command = append $command "--scheduler-config=/etc/plimsoll/scheduler_config.yaml" }}
{{- end }}
{{- end }}
{{- $_ := set $container "command" $command }}
{{- with $annotations }}
{{- $_ := set $template.metadata "annotations" . }}
{{- end }}
{{- $_ := set $container "image" (printf "%s:%s" $manager.image.repository (default .Chart.AppVersion $manager.image.tag)) }}
{{- $_ := set $container "imagePullPolicy" $manager.image.pullPolicy }}
{{- $_ := set $container "resources" $manager.resources }}
{{- $_ := set $container "securityContext" $manager.containerSecurityContext }}
{{- $_ := set $spec "securityContext" $manager.podSecurityContext }}
{{- $_ := unset $spec "priorityClassName" }}
{{- with $manager.priorityClassName }}
{{- $_ := set $spec "priorityClassName" . }}
{{- end }}
{{- $_ := unset $spec "tolerations" }}
{{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" "topologySpreadConstraints" }}
{{- with index $.Values.controllerManager $field }}
{{- $_ := set $spec $field . }}
{{- end }}
{{- end }}
{{- toJson $deployment }}
{{- end }}
