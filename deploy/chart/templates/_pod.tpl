{{/* The parts that all pods have in common: security, placement, volumes. */}}

{{/*
The spec of a pod with one container. Arguments:
  root, component       as in "scorestream.labels"
  pod                   the values of the component: resources, placement, extra variables and volumes
  container             name, image, command, env, ports, probes, mounts and volumes of the container
  spec                  further fields of the pod's spec
  graceSeconds          the time from SIGTERM to SIGKILL; default: 30
*/}}
{{- define "scorestream.podSpec" -}}
{{- $root := .root -}}
{{- $pod := .pod -}}
{{- $container := .container -}}
serviceAccountName: {{ .serviceAccount | default (include "scorestream.name" .) }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .spec }}
{{ toYaml . }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ .graceSeconds | default 30 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity | default $pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat ($pod.tolerations | default list) (.tolerations | default list) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .spread }}
topologySpreadConstraints:
  {{- range $key := $root.Values.topologySpread.keys }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: {{ $root.Values.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "scorestream.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
containers:
  - name: {{ $container.name }}
    image: {{ $container.image }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: {{ toJson $container.command }}
    {{- with concat ($container.env | default list) ($root.Values.extraEnv | default list) ($pod.extraEnv | default list) }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $container.port }}
    ports:
      - {name: http, containerPort: {{ . }}}
    startupProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 2
      failureThreshold: {{ div (int $container.startSeconds) 2 }}
    livenessProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 10
      timeoutSeconds: 3
      failureThreshold: 3
    readinessProbe:
      httpGet: {path: /readyz, port: http}
      periodSeconds: 5
      timeoutSeconds: 3
      failureThreshold: 2
    {{- end }}
    resources:
      {{- toYaml $container.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      privileged: false
      readOnlyRootFilesystem: true
      runAsNonRoot: true
      runAsUser: 10001
      runAsGroup: 10001
      capabilities: {drop: [ALL]}
    volumeMounts:
      {{- toYaml (concat $container.mounts ($pod.extraVolumeMounts | default list)) | nindent 6 }}
volumes:
  {{- toYaml (concat $container.volumes ($pod.extraVolumes | default list)) | nindent 2 }}
{{- end -}}

{{/*
Resources with the ephemeral storage that the volumes of the pod take, unless the values state it. Arguments:
  resources             the values
  mebibytes             the sum of the size limits of the emptyDir volumes
  extended              resources that are requested beside: name to number, such as GPUs
*/}}
{{- define "scorestream.resources" -}}
{{- $resources := deepCopy .resources -}}
{{- $requests := merge ($resources.requests | default dict) (dict "ephemeral-storage" (printf "%dMi" (int64 .mebibytes))) -}}
{{- /* Beyond the volumes: the log of the container. */ -}}
{{- $limits := merge ($resources.limits | default dict) (dict "ephemeral-storage" (printf "%dMi" (add 512 (int64 .mebibytes)))) -}}
{{- range $name, $number := .extended | default dict -}}
{{- $_ := set $requests $name $number -}}
{{- $_ := set $limits $name $number -}}
{{- end -}}
{{- toYaml (dict "requests" $requests "limits" $limits) -}}
{{- end -}}

{{/*
Volumes and mounts of a pod that runs commands of the scorer, as a map with `mounts`, `volumes` and `env`. Arguments:
  root
  config                name of the ConfigMap that is mounted at /etc/scorestream
  kafka                 the component whose Kafka credentials are mounted (a key of kafka.secrets)
  registrySecret        name of the Secret with the registry's credentials; none if empty
  signing               whether the signing key is mounted
  tmp                   the size limit of /tmp
*/}}
{{- define "scorestream.storage" -}}
{{- $values := .root.Values -}}
{{- $mounts := list (dict "name" "config" "mountPath" "/etc/scorestream" "readOnly" true) -}}
{{- $volumes := list (dict "name" "config" "configMap" (dict "name" .config)) -}}
{{- $env := list -}}
{{- if include "scorestream.hasKafkaSecret" .root -}}
{{- $secret := include "scorestream.kafkaSecret" (dict "root" .root "component" .kafka) -}}
{{- $mounts = append $mounts (dict "name" "kafka" "mountPath" "/run/secrets/kafka" "readOnly" true) -}}
{{- $volumes = append $volumes (dict "name" "kafka" "secret" (dict "secretName" $secret "defaultMode" 288)) -}}
{{- if include "scorestream.usesSasl" .root -}}
{{- $source := dict "secretKeyRef" (dict "name" $secret "key" $values.kafka.secretKeys.username) -}}
{{- $env = append $env (dict "name" "SCORER_KAFKA__SECURITY__USERNAME" "valueFrom" $source) -}}
{{- end -}}
{{- end -}}
{{- if .registrySecret -}}
{{- $items := list (dict "key" ".dockerconfigjson" "path" "config.json") -}}
{{- $mounts = append $mounts (dict "name" "registry" "mountPath" "/run/secrets/registry" "readOnly" true) -}}
{{- $volumes = append $volumes (dict "name" "registry" "secret" (dict "secretName" .registrySecret "defaultMode" 288 "items" $items)) -}}
{{- $env = append $env (dict "name" "DOCKER_CONFIG" "value" "/run/secrets/registry") -}}
{{- end -}}
{{- $ca := $values.registry.ca -}}
{{- if or $ca.secret $ca.configMap -}}
{{- $mounts = append $mounts (dict "name" "registry-ca" "mountPath" "/run/secrets/registry-ca" "readOnly" true) -}}
{{- $source := ternary (dict "secret" (dict "secretName" $ca.secret "defaultMode" 288)) (dict "configMap" (dict "name" $ca.configMap)) (ne $ca.secret "") -}}
{{- $volumes = append $volumes (merge (dict "name" "registry-ca") $source) -}}
{{- end -}}
{{- with $values.schemaRegistry -}}
{{- if .secret -}}
{{- if .secretKeys.ca -}}
{{- $items := list (dict "key" .secretKeys.ca "path" .secretKeys.ca) -}}
{{- $mounts = append $mounts (dict "name" "schema-registry" "mountPath" "/run/secrets/schema-registry" "readOnly" true) -}}
{{- $volumes = append $volumes (dict "name" "schema-registry" "secret" (dict "secretName" .secret "defaultMode" 288 "items" $items)) -}}
{{- end -}}
{{- if .secretKeys.username -}}
{{- range $variable, $key := dict "SCHEMA_REGISTRY_USERNAME" .secretKeys.username "SCHEMA_REGISTRY_PASSWORD" .secretKeys.password -}}
{{- $env = append $env (dict "name" $variable "valueFrom" (dict "secretKeyRef" (dict "name" $values.schemaRegistry.secret "key" $key))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .signing $values.signing.secret -}}
{{- $mounts = append $mounts (dict "name" "signing" "mountPath" "/run/secrets/signing" "readOnly" true) -}}
{{- $volumes = append $volumes (dict "name" "signing" "secret" (dict "secretName" $values.signing.secret "defaultMode" 288)) -}}
{{- end -}}
{{- $mounts = append $mounts (dict "name" "cache" "mountPath" "/var/cache/scorestream") -}}
{{- $volumes = append $volumes (dict "name" "cache" "emptyDir" (dict "sizeLimit" $values.cache.size)) -}}
{{- $mounts = append $mounts (dict "name" "tmp" "mountPath" "/tmp") -}}
{{- $volumes = append $volumes (dict "name" "tmp" "emptyDir" (dict "sizeLimit" .tmp)) -}}
{{- toYaml (dict "mounts" $mounts "volumes" $volumes "env" $env) -}}
{{- end -}}

{{/* The size of the cache and of /tmp together, in MiB. Arguments: root, tmp. */}}
{{- define "scorestream.storageSize" -}}
{{ add (include "scorestream.mebibytes" .root.Values.cache.size) (include "scorestream.mebibytes" .tmp) }}
{{- end -}}

{{/* The metadata of a pod's template. Arguments: root, component, pod; optionally config, the text whose change restarts pods. */}}
{{- define "scorestream.podMetadata" -}}
labels:
  {{- include "scorestream.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: scorestream
  {{- with .pod.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or .config .pod.podAnnotations }}
annotations:
  {{- with .config }}
  checksum/config: {{ sha256sum . }}
  {{- end }}
  {{- with .pod.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* ServiceAccount of a component: without rights and without a token, because no component uses the Kubernetes API. */}}
{{- define "scorestream.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "scorestream.metadata" . | nindent 2 }}
  {{- with .root.Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}

{{/* PodDisruptionBudget of a component: a drain evicts one pod at a time. */}}
{{- define "scorestream.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "scorestream.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .root.Values.podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "scorestream.selector" . | nindent 6 }}
{{- end -}}

{{/* Headless Service of a component: the names of its pods, and the endpoints of a ServiceMonitor. Arguments: root, component, port. */}}
{{- define "scorestream.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "scorestream.metadata" . | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "scorestream.selector" . | nindent 4 }}
  ports:
    - {name: http, port: {{ .port }}, targetPort: http}
{{- end -}}

{{/* Variables that name the mounted signing key for commands that move the channel, as a YAML list. Argument: root. */}}
{{- define "scorestream.signingEnv" -}}
{{- $env := list -}}
{{- with .Values.signing -}}
{{- if .secret -}}
{{- $env = append $env (dict "name" "SCORER_ROLLOUT__KEY_FILE" "value" (printf "/run/secrets/signing/%s" .key)) -}}
{{- if .password -}}
{{- $env = append $env (dict "name" "SCORER_ROLLOUT__PASSWORD_FILE" "value" (printf "/run/secrets/signing/%s" .password)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $env -}}
{{- end -}}

{{/* Variables of commands that run a model outside of the scorers, where pods have no GPU, as a YAML list. Argument: root. */}}
{{- define "scorestream.cpuEnv" -}}
{{- if .Values.gpu.enabled -}}
- {name: SCORER_MODEL__DEVICE, value: cpu}
- {name: SCORER_MODEL__DEVICES, value: all}
{{- else -}}
[]
{{- end -}}
{{- end -}}
