{{/* Names, labels, images and quantities. Every name begins with the name of the release. */}}

{{/* Name of an object: `<release>-<component>`. Arguments: root, component. */}}
{{- define "scorestream.name" -}}
{{ printf "%s-%s" .root.Release.Name .component }}
{{- end -}}

{{/* The value of the label `app.kubernetes.io/instance`. The shadow has its own, because alerts and dashboards select services by it. */}}
{{- define "scorestream.instance" -}}
{{ .root.Release.Name }}{{ if eq .component "shadow" }}-shadow{{ end }}
{{- end -}}

{{/* Labels that select the pods of a component. Arguments: root, component. */}}
{{- define "scorestream.selector" -}}
app.kubernetes.io/name: scorestream
app.kubernetes.io/instance: {{ include "scorestream.instance" . }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object. Arguments: root, component. */}}
{{- define "scorestream.labels" -}}
{{ include "scorestream.selector" . }}
app.kubernetes.io/part-of: scorestream
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Metadata of an object: name, namespace and labels. Arguments: root, component; optionally name. */}}
{{- define "scorestream.metadata" -}}
name: {{ .name | default (include "scorestream.name" .) }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "scorestream.labels" . | nindent 2 }}
{{- end -}}

{{/* Reference of an image. A digest fixes the content; the tag beside it is for readers. Arguments: root, image, variant. */}}
{{- define "scorestream.image" -}}
{{- $image := merge (deepCopy .image) .root.Values.image -}}
{{- if not $image.repository -}}
{{- fail "image.repository is empty: set it to the repository of your image, such as registry.example.com/team/scorestream" -}}
{{- end -}}
{{- $tag := .image.tag | default (printf "%s-%s" .root.Chart.AppVersion .variant) -}}
{{- if .image.digest -}}
{{ $image.repository }}:{{ $tag }}@{{ .image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $tag }}
{{- end -}}
{{- end -}}

{{/* A quantity, such as 2Gi, in MiB, rounded down. Argument: the quantity. */}}
{{- define "scorestream.mebibytes" -}}
{{- $number := regexFind "^[0-9]+" (toString .) | int64 -}}
{{- $unit := regexFind "[A-Za-z]*$" (toString .) -}}
{{- if eq $unit "Ti" -}}{{ mul $number 1048576 }}
{{- else if eq $unit "Gi" -}}{{ mul $number 1024 }}
{{- else if eq $unit "Mi" -}}{{ $number }}
{{- else -}}{{ fail (printf "%v is not a size of this chart: write a whole number and Mi, Gi or Ti, such as 2Gi" .) }}
{{- end -}}
{{- end -}}

{{/* Name of the Secret with the Kafka credentials of a component. Arguments: root, component (a key of kafka.secrets). */}}
{{- define "scorestream.kafkaSecret" -}}
{{ get .root.Values.kafka.secrets .component | default (printf "%s-%s-kafka" .root.Release.Name (kebabcase .component)) }}
{{- end -}}

{{/* Whether clients of Kafka need a Secret: credentials, or a certificate authority. */}}
{{- define "scorestream.hasKafkaSecret" -}}
{{- $kafka := .Values.kafka -}}
{{- if or (ne $kafka.authentication "none") (and $kafka.encryption $kafka.secretKeys.ca) -}}true{{- end -}}
{{- end -}}

{{/* Whether clients log in to Kafka with a name and a password. */}}
{{- define "scorestream.usesSasl" -}}
{{- if has .Values.kafka.authentication (list "scram-sha-512" "scram-sha-256" "plain") -}}true{{- end -}}
{{- end -}}
