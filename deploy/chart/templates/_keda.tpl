{{/* Triggers of KEDA on the lag of a group, and their credentials. */}}

{{/* Metadata of a trigger of the type kafka. Arguments: root, config, group, topic, start. */}}
{{- define "scorestream.trigger" -}}
bootstrapServers: {{ .config.kafka.bootstrap_servers | quote }}
consumerGroup: {{ .group | quote }}
topic: {{ .topic | quote }}
offsetResetPolicy: {{ .start }}
{{- if .root.Values.kafka.encryption }}
tls: enable
{{- end }}
{{- if include "scorestream.usesSasl" .root }}
sasl: {{ ternary "plaintext" (.root.Values.kafka.authentication | replace "-" "_" | replace "sha_" "sha") (eq .root.Values.kafka.authentication "plain") }}
{{- end }}
allowIdleConsumers: "false"
excludePersistentLag: "false"
limitToPartitionsWithLag: "false"
{{- end -}}

{{/* TriggerAuthentication with the Kafka credentials of a component. Arguments: root, component, secret (a key of kafka.secrets). */}}
{{- define "scorestream.triggerAuthentication" -}}
{{- $keys := .root.Values.kafka.secretKeys -}}
{{- $secret := include "scorestream.kafkaSecret" (dict "root" .root "component" .secret) -}}
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  {{- include "scorestream.metadata" . | nindent 2 }}
spec:
  secretTargetRef:
    {{- if and .root.Values.kafka.encryption $keys.ca }}
    - {parameter: ca, name: {{ $secret }}, key: {{ $keys.ca }}}
    {{- end }}
    {{- if eq .root.Values.kafka.authentication "tls" }}
    - {parameter: cert, name: {{ $secret }}, key: {{ $keys.certificate }}}
    - {parameter: key, name: {{ $secret }}, key: {{ $keys.key }}}
    {{- else if include "scorestream.usesSasl" .root }}
    - {parameter: username, name: {{ $secret }}, key: {{ $keys.username }}}
    - {parameter: password, name: {{ $secret }}, key: {{ $keys.password }}}
    {{- end }}
{{- end -}}
