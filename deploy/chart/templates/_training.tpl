{{/* The Job of a training run: one spec for runs on schedule, by hand and by event. */}}

{{/* The content of training.yaml, as YAML. Argument: root. */}}
{{- define "scorestream.trainingConfig" -}}
{{- $training := .Values.training -}}
{{- $publish := dict "key_file" (printf "/run/secrets/signing/%s" $training.signing.key) -}}
{{- if $training.signing.password -}}
{{- $_ := set $publish "password_file" (printf "/run/secrets/signing/%s" $training.signing.password) -}}
{{- end -}}
{{- $derived := dict "scorer" "scorer.yaml" "folder" "/var/lib/scorestream/runs" "recipe" "trees" "workers" 2 "publish" $publish -}}
{{- mergeOverwrite $derived (include "scorestream.withoutNulls" $training.config | fromYaml) | toYaml -}}
{{- end -}}

{{/* The content of scorer.yaml of training runs: that of the scorers, on CPUs. Argument: root. */}}
{{- define "scorestream.trainingScorerConfig" -}}
{{- $config := include "scorestream.config" . | fromYaml -}}
{{- $_ := set $config "model" (merge (dict "device" "cpu") (omit $config.model "devices" "buckets")) -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The image of training runs. Argument: root. */}}
{{- define "scorestream.trainingImage" -}}
{{- $recipe := (include "scorestream.trainingConfig" . | fromYaml).recipe -}}
{{- $section := kindIs "map" $recipe | ternary $recipe (dict "name" $recipe) -}}
{{- if $section.image -}}
{{- $section.image -}}
{{- else -}}
{{- include "scorestream.image" (dict "root" . "image" .Values.training.image "variant" (eq (toString $section.name) "network" | ternary "network" "training")) -}}
{{- end -}}
{{- end -}}

{{/* The spec of the Job. Argument: root. */}}
{{- define "scorestream.trainingJob" -}}
{{- $pod := .Values.training -}}
{{- $context := dict "root" . "component" "training" -}}
{{- $name := include "scorestream.name" $context -}}
{{- $settings := include "scorestream.trainingConfig" . -}}
{{- $gpus := (fromYaml $settings).gpus | default 0 | int -}}
{{- $storage := include "scorestream.storage" (dict "root" . "config" $name "kafka" "training" "registrySecret" .Values.registry.pushSecret "tmp" "512Mi") | fromYaml -}}
{{- $mounts := concat $storage.mounts (list (dict "name" "signing" "mountPath" "/run/secrets/signing" "readOnly" true) (dict "name" "runs" "mountPath" "/var/lib/scorestream")) -}}
{{- $volumes := concat $storage.volumes (list (dict "name" "signing" "secret" (dict "secretName" $pod.signing.secret "defaultMode" 288)) (dict "name" "runs" "persistentVolumeClaim" (dict "claimName" (printf "%s-runs" $name)))) -}}
{{- $extended := dict -}}
{{- $tolerations := list -}}
{{- if $gpus -}}
{{- $_ := set $extended .Values.gpu.resource $gpus -}}
{{- $tolerations = .Values.gpu.tolerations -}}
{{- end -}}
{{- $size := include "scorestream.storageSize" (dict "root" . "tmp" "512Mi") -}}
{{- $resources := include "scorestream.resources" (dict "resources" $pod.resources "mebibytes" $size "extended" $extended) | fromYaml -}}
{{- $container := dict "name" "training" "image" (include "scorestream.trainingImage" .) "command" (list "python3" "/opt/scorestream/deploy/training" "run" "/etc/scorestream/training.yaml") "env" $storage.env -}}
{{- $container = merge $container (dict "resources" $resources "mounts" $mounts "volumes" $volumes) -}}
# Waits between retries: 10 s, 20 s, 40 s and so on, at most 6 min: half an hour without Kafka or the registry.
backoffLimit: 10
activeDeadlineSeconds: {{ $pod.activeDeadlineSeconds | int64 }}
# The next pod starts after the last one has ended: both use one folder.
podReplacementPolicy: Failed
podFailurePolicy:
  rules:
    # A drained node or a preemption is not a failure of the run: the next pod continues it.
    - action: Ignore
      onPodConditions:
        - {type: DisruptionTarget, status: "True"}
    # A retry does not help: rejected by the gate or too few labels (1), the configuration (2), rejected (3).
    - action: FailJob
      onExitCodes: {containerName: training, operator: In, values: [1, 2, 3]}
template:
  metadata:
    {{- include "scorestream.podMetadata" (merge (dict "pod" $pod) $context) | nindent 4 }}
  spec:
    {{- include "scorestream.podSpec" (merge (dict "pod" $pod "container" $container "tolerations" $tolerations "spec" (dict "restartPolicy" "Never")) $context) | nindent 4 }}
{{- end -}}
