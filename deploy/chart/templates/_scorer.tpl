{{/* A StatefulSet of scorers, or of the shadow, with its Service, ServiceAccount, PodDisruptionBudget and NetworkPolicy. */}}

{{/*
A StatefulSet gives stable names: the name of a pod is the `replica` of its scorer. A pod that is created again has the same
transactional ids, so that its start fences transactions that its predecessor left open. An update never runs more pods than
`replicas`, so that it needs no spare GPU. Arguments: root, component (scorer or shadow), pod, scaled (whether KEDA sets replicas).
*/}}
{{- define "scorestream.scorers" -}}
{{- $root := .root -}}
{{- $pod := .pod -}}
{{- $config := include "scorestream.config" $root -}}
{{- $isShadow := eq .component "shadow" -}}
{{- $storage := include "scorestream.storage" (dict "root" $root "config" (printf "%s-scorer" $root.Release.Name) "kafka" .component "registrySecret" $root.Values.registry.pullSecret "tmp" $root.Values.tmp.size) | fromYaml -}}
{{- $command := list "scorer" "run" "/etc/scorestream/scorer.yaml" "--workers" "1" -}}
{{- $env := $storage.env -}}
{{- if $isShadow -}}
{{- $command = append $command "--shadow" -}}
{{- $env = append $env (dict "name" "SCORER_SHADOW__LISTEN" "value" "0.0.0.0:9464") -}}
{{- end -}}
{{- $gpu := $root.Values.gpu -}}
{{- $extended := dict -}}
{{- $tolerations := list -}}
{{- $affinity := dict -}}
{{- if $gpu.enabled -}}
{{- $_ := set $extended $gpu.resource 1 -}}
{{- $tolerations = $gpu.tolerations -}}
{{- $terms := dict "nodeSelectorTerms" $gpu.nodeSelectorTerms -}}
{{- $affinity = merge (deepCopy $pod.affinity) (dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" $terms)) -}}
{{- end -}}
{{- $size := include "scorestream.storageSize" (dict "root" $root "tmp" $root.Values.tmp.size) -}}
{{- $resources := include "scorestream.resources" (dict "resources" $pod.resources "mebibytes" $size "extended" $extended) | fromYaml -}}
{{- $image := include "scorestream.image" (dict "root" $root "image" $root.Values.image "variant" (ternary "gpu" "cpu" $gpu.enabled)) -}}
{{- $container := dict "name" "scorer" "image" $image "command" $command "env" $env "port" 9464 "startSeconds" 600 -}}
{{- $container = merge $container (dict "resources" $resources "mounts" $storage.mounts "volumes" $storage.volumes) -}}
{{- /* A scorer that hangs ends itself after two transaction timeouts (10 s each by default). */ -}}
{{- $timeout := dig "kafka" "transaction_timeout_ms" 10000 (fromYaml $config) | int -}}
{{- $grace := max 30 (add 10 (div (mul 2 $timeout) 1000)) -}}
{{- $watched := print $config (toYaml $root.Values.files) -}}
{{- /*
An upgrade that leaves out a field which the last one wrote removes it, and a StatefulSet without `replicas` has one pod. A release
that had `replicas` before autoscaling therefore keeps the field, with the live number; the annotation marks it.
*/ -}}
{{- $replicas := $pod.replicas -}}
{{- $annotation := "scorestream/replicas" -}}
{{- if .scaled -}}
{{- $live := lookup "apps/v1" "StatefulSet" $root.Release.Namespace (include "scorestream.name" .) -}}
{{- $replicas = ternary (dig "spec" "replicas" nil $live) nil (eq "written" (dig "metadata" "annotations" $annotation "" $live)) -}}
{{- end -}}
{{- $writesReplicas := not (kindIs "invalid" $replicas) -}}
{{- include "scorestream.service" (dict "root" $root "component" .component "port" 9464) }}
---
{{ include "scorestream.serviceAccount" . }}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  {{- include "scorestream.metadata" . | nindent 2 }}
  {{- if $writesReplicas }}
  annotations: {{ "{" }}{{ $annotation }}: written}
  {{- end }}
spec:
  {{- if $writesReplicas }}
  replicas: {{ int64 $replicas }}
  {{- end }}
  serviceName: {{ include "scorestream.name" . }}
  podManagementPolicy: Parallel
  {{- with $pod.updateStrategy }}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: {{ .partition }}}}
  {{- end }}
  selector:
    matchLabels:
      {{- include "scorestream.selector" . | nindent 6 }}
  template:
    metadata:
      {{- include "scorestream.podMetadata" (dict "root" $root "component" .component "pod" $pod "config" $watched) | nindent 6 }}
    spec:
      {{- include "scorestream.podSpec" (dict "root" $root "component" .component "pod" $pod "container" $container "spread" true "affinity" $affinity "tolerations" $tolerations "graceSeconds" $grace) | nindent 6 }}
{{- if $root.Values.podDisruptionBudget.enabled }}
---
{{ include "scorestream.disruptionBudget" . }}
{{- end }}
{{- if $root.Values.networkPolicy.enabled }}
---
{{ include "scorestream.networkPolicy" (dict "root" $root "component" .component "port" 9464 "config" (fromYaml $config)) }}
{{- end }}
{{- end -}}
