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

{{/* The resource of the GPUs of training runs. Argument: root. */}}
{{- define "scorestream.trainingGpu" -}}
{{- .Values.training.gpu.resource | default .Values.gpu.resource -}}
{{- end -}}

{{/* The affinity of training pods: that of the values, and the nodes with a permitted kind of GPU. Argument: root. */}}
{{- define "scorestream.trainingAffinity" -}}
{{- $training := .Values.training -}}
{{- $affinity := deepCopy $training.affinity -}}
{{- if $training.gpu.kinds -}}
{{- if not (include "scorestream.trainingConfig" . | fromYaml).gpus -}}
{{- fail "training.gpu.kinds is set, but training.config.gpus is 0: set it to the number of GPUs, or remove training.gpu.kinds" -}}
{{- end -}}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- if dig "nodeAffinity" $required "" $affinity -}}
{{- fail (printf "training.gpu.kinds and training.affinity.nodeAffinity.%s are both set: add %s to the terms, and remove training.gpu.kinds" $required $training.gpu.label) -}}
{{- end -}}
{{- $kinds := dict "key" $training.gpu.label "operator" "In" "values" $training.gpu.kinds -}}
{{- $terms := dict "nodeSelectorTerms" (list (dict "matchExpressions" (list $kinds))) -}}
{{- $affinity = merge $affinity (dict "nodeAffinity" (dict $required $terms)) -}}
{{- end -}}
{{- toYaml $affinity -}}
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
{{- $_ := set $extended (include "scorestream.trainingGpu" .) $gpus -}}
{{- $tolerations = .Values.gpu.tolerations -}}
{{- end -}}
{{- $size := include "scorestream.storageSize" (dict "root" . "tmp" "512Mi") -}}
{{- $resources := include "scorestream.resources" (dict "resources" $pod.resources "mebibytes" $size "extended" $extended) | fromYaml -}}
{{- $container := dict "name" "training" "image" (include "scorestream.trainingImage" .) "command" (list "scorer" "train" "run" "/etc/scorestream/training.yaml") "env" $storage.env -}}
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
    {{- include "scorestream.podSpec" (merge (dict "pod" $pod "container" $container "affinity" (include "scorestream.trainingAffinity" . | fromYaml) "tolerations" $tolerations "spec" (dict "restartPolicy" "Never")) $context) | nindent 4 }}
{{- end -}}
