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

{{/* A line for each Secret that the release reads: its name, its keys and the components that use it. Argument: root. */}}
{{- define "scorestream.secretList" -}}
{{- $values := .Values -}}
{{- $users := dict -}}
{{- $keys := dict -}}
{{- if include "scorestream.hasKafkaSecret" . -}}
{{- $kafka := list -}}
{{- if and $values.kafka.encryption $values.kafka.secretKeys.ca -}}{{- $kafka = append $kafka $values.kafka.secretKeys.ca -}}{{- end -}}
{{- if eq $values.kafka.authentication "tls" -}}
{{- $kafka = concat $kafka (list $values.kafka.secretKeys.certificate $values.kafka.secretKeys.key) -}}
{{- else if include "scorestream.usesSasl" . -}}
{{- $kafka = concat $kafka (list $values.kafka.secretKeys.username $values.kafka.secretKeys.password) -}}
{{- end -}}
{{- $components := list "scorer" -}}
{{- if $values.autoscaling.enabled -}}{{- $components = append $components "autoscaler" -}}{{- end -}}
{{- if $values.shadow.enabled -}}{{- $components = append $components "shadow" -}}{{- end -}}
{{- if $values.rolloutController.enabled -}}{{- $components = append $components "rolloutController" -}}{{- end -}}
{{- if $values.toolbox.enabled -}}{{- $components = concat $components $values.toolbox.identities -}}{{- end -}}
{{- if $values.training.enabled -}}{{- $components = append $components "training" -}}{{- end -}}
{{- if and $values.training.enabled $values.training.onLabels.enabled -}}{{- $components = append $components "trainingTrigger" -}}{{- end -}}
{{- range $component := $components -}}
{{- $secret := include "scorestream.kafkaSecret" (dict "root" $ "component" $component) -}}
{{- $_ := set $keys $secret $kafka -}}
{{- $_ := set $users $secret (append (get $users $secret | default list) (kebabcase $component)) -}}
{{- end -}}
{{- range $relay := $values.relays -}}
{{- $source := $relay.sourceSecret | default (printf "%s-relay-%s-kafka" $.Release.Name $relay.name) -}}
{{- $destination := $relay.destinationSecret | default (include "scorestream.kafkaSecret" (dict "root" $ "component" "relay")) -}}
{{- range $secret := list $source $destination -}}
{{- $_ := set $keys $secret $kafka -}}
{{- $_ := set $users $secret (append (get $users $secret | default list) (printf "relay %s" $relay.name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $values.registry.pullSecret -}}
{{- $_ := set $keys . (list ".dockerconfigjson") -}}
{{- $_ := set $users . (list "pull from the registry of models") -}}
{{- end -}}
{{- with $values.registry.pushSecret -}}
{{- $_ := set $keys . (list ".dockerconfigjson") -}}
{{- $_ := set $users . (list "push to the registry of models") -}}
{{- end -}}
{{- with $values.registry.ca.secret -}}
{{- $_ := set $keys . (list $values.registry.ca.key) -}}
{{- $_ := set $users . (list "certificate authority of the registry of models") -}}
{{- end -}}
{{- with $values.schemaRegistry.secret -}}
{{- $names := $values.schemaRegistry.secretKeys -}}
{{- $_ := set $keys . (compact (list $names.ca $names.username (ternary $names.password "" (ne $names.username "")))) -}}
{{- $_ := set $users . (list "schema registry") -}}
{{- end -}}
{{- range $variable := $values.extraEnv -}}
{{- with dig "valueFrom" "secretKeyRef" dict $variable -}}
{{- $_ := set $keys .name (uniq (append (get $keys .name | default list) .key)) -}}
{{- $_ := set $users .name (append (get $users .name | default list) $variable.name) -}}
{{- end -}}
{{- end -}}
{{- with $values.signing.secret -}}
{{- $_ := set $keys . (compact (list $values.signing.key $values.signing.password)) -}}
{{- $_ := set $users . (list "signature of moves") -}}
{{- end -}}
{{- if $values.training.enabled -}}
{{- $secret := $values.training.signing.secret -}}
{{- $_ := set $keys $secret (uniq (concat (get $keys $secret | default list) (compact (list $values.training.signing.key $values.training.signing.password)))) -}}
{{- $_ := set $users $secret (append (get $users $secret | default list) "signature of versions") -}}
{{- end -}}
{{- range $values.imagePullSecrets -}}
{{- $_ := set $keys .name (list ".dockerconfigjson") -}}
{{- $_ := set $users .name (append (get $users .name | default list) "pull of the image") -}}
{{- end -}}
{{- range $secret := keys $keys | sortAlpha }}
  {{ $secret }} ({{ get $keys $secret | join ", " }}): {{ get $users $secret | join ", " }}
{{- end -}}
{{- end -}}
