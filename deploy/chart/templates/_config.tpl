{{/* The configuration of the scorers: what the chart derives, then `config` of the values over it. */}}

{{/* The section `security` of a Kafka client whose Secret is mounted at a folder. Arguments: root, folder. */}}
{{- define "scorestream.security" -}}
{{- $kafka := .root.Values.kafka -}}
{{- $keys := $kafka.secretKeys -}}
{{- if eq $kafka.authentication "tls" -}}
protocol: SSL
certificate_file: {{ .folder }}/{{ $keys.certificate }}
key_file: {{ .folder }}/{{ $keys.key }}
{{- else if eq $kafka.authentication "none" -}}
protocol: {{ ternary "SSL" "PLAINTEXT" $kafka.encryption }}
{{- else -}}
protocol: {{ ternary "SASL_SSL" "SASL_PLAINTEXT" $kafka.encryption }}
mechanism: {{ upper $kafka.authentication }}
password_file: {{ .folder }}/{{ $keys.password }}
{{- end }}
{{- if and $kafka.encryption $keys.ca }}
ca_file: {{ .folder }}/{{ $keys.ca }}
{{- end }}
{{- end -}}

{{/* A map without the keys whose value is null, so that a null in a values file restores what is derived. Argument: the map. */}}
{{- define "scorestream.withoutNulls" -}}
{{- $result := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $result $key (include "scorestream.withoutNulls" $value | fromYaml) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $result $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $result -}}
{{- end -}}

{{/* The content of scorer.yaml, as YAML. Argument: root. */}}
{{- define "scorestream.config" -}}
{{- $config := include "scorestream.withoutNulls" .Values.config | fromYaml -}}
{{- $name := $config.name | default (printf "%s.%s" .Release.Namespace .Release.Name) -}}
{{- /* The rest of the volume is room for one version while it is unpacked from a container image, and for the file system's blocks. */ -}}
{{- $cache := div (mul 7 (int64 (include "scorestream.mebibytes" .Values.cache.size))) 10 -}}
{{- $model := dict "cache" "/var/cache/scorestream" "cache_bytes" (printf "%dMiB" $cache) -}}
{{- /* The cache holds the version in use, the one before it, the next one and a canary. */ -}}
{{- $_ := set $model "max_bytes" (printf "%dMiB" (min 8192 (div $cache 4))) -}}
{{- $_ := set $model "device" (ternary "cuda" "cpu" .Values.gpu.enabled) -}}
{{- if or .Values.registry.ca.secret .Values.registry.ca.configMap -}}
{{- $_ := set $model "ca_file" (printf "/run/secrets/registry-ca/%s" .Values.registry.ca.key) -}}
{{- end -}}
{{- $kafka := dict "bootstrap_servers" .Values.kafka.bootstrapServers -}}
{{- $_ := set $kafka "security" (include "scorestream.security" (dict "root" . "folder" "/run/secrets/kafka") | fromYaml) -}}
{{- $derived := dict "name" $name "kafka" $kafka "model" $model -}}
{{- $_ := set $derived "output" (dict "topic" (printf "%s.scores" $name)) -}}
{{- $_ := set $derived "dead_letter" (dict "topic" (printf "%s.dead" $name)) -}}
{{- $_ := set $derived "http" (dict "listen" "0.0.0.0:9464") -}}
{{- mergeOverwrite $derived $config | toYaml -}}
{{- end -}}

{{/* Reject values that cannot work, before anything is installed. Argument: root. Writes nothing. */}}
{{- define "scorestream.check" -}}
{{- $release := .Release.Name -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$" $release) -}}
{{- fail (printf "the release name %q cannot begin the names of all objects: use at most 40 lower-case letters, digits and hyphens, a letter first" $release) -}}
{{- end -}}
{{- if regexMatch "-(scorer|shadow|training|training-nodes|rollout-controller|relay-.*|toolbox-.*)$" $release -}}
{{- fail (printf "the release name %q ends like the name of a component of another release: choose another name" $release) -}}
{{- end -}}
{{- $config := include "scorestream.config" . | fromYaml -}}
{{- if not (regexMatch "^[a-zA-Z0-9._-]{1,100}$" $config.name) -}}
{{- fail (printf "config.name is %q, but a name of scorers has at most 100 letters, digits, '.', '_' and '-': set a shorter config.name" $config.name) -}}
{{- end -}}
{{- if not $config.kafka.bootstrap_servers -}}
{{- fail "kafka.bootstrapServers is empty: set it to host:port of your brokers, such as events-kafka-bootstrap.kafka.svc:9093" -}}
{{- end -}}
{{- if not (dig "input" "topics" (list) $config) -}}
{{- fail "config.input.topics is empty: list the topics that the model's events are read from" -}}
{{- end -}}
{{- if not $config.model.source -}}
{{- fail "config.model.source is empty: set it to the repository of the model, such as registry.example.com/team/my-model" -}}
{{- end -}}
{{- if hasKey .Values.config "replica" -}}
{{- fail "config.replica is set, but it must differ between pods, and is the pod's name: remove config.replica" -}}
{{- end -}}
{{- if ne $config.http.listen "0.0.0.0:9464" -}}
{{- fail (printf "config.http.listen is %q, but probes and monitoring use 0.0.0.0:9464: remove config.http.listen" $config.http.listen) -}}
{{- end -}}
{{- if and .Values.gpu.enabled (eq $config.model.device "cpu") -}}
{{- fail "gpu.enabled is true, but config.model.device is cpu: remove config.model.device, or set gpu.enabled to false" -}}
{{- end -}}
{{- if and (not .Values.gpu.enabled) (ne $config.model.device "cpu") -}}
{{- fail (printf "config.model.device is %s, but gpu.enabled is false, so that pods would get no GPU: set gpu.enabled to true" $config.model.device) -}}
{{- end -}}
{{- if and (eq .Values.kafka.authentication "tls") (not .Values.kafka.encryption) -}}
{{- fail "kafka.authentication is tls, but kafka.encryption is false: set kafka.encryption to true, or choose another authentication" -}}
{{- end -}}
{{- if and .Values.registry.ca.secret .Values.registry.ca.configMap -}}
{{- fail "registry.ca.secret and registry.ca.configMap are both set: set the one that has the certificate authority" -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if .enabled -}}
{{- if not .maxReplicas -}}
{{- fail "autoscaling.maxReplicas is empty: set it to the number of partitions of the input topics; more scorers would be idle" -}}
{{- end -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas is %v, but maxReplicas is %v: lower minReplicas" .minReplicas .maxReplicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.monitoring.podMonitor.enabled .Values.monitoring.serviceMonitor.enabled -}}
{{- fail "monitoring.podMonitor and monitoring.serviceMonitor are both enabled, so that each pod would be scraped twice: disable one" -}}
{{- end -}}
{{- $relays := list -}}
{{- range .Values.relays -}}
{{- if has .name $relays -}}
{{- fail (printf "relays: two relays are named %s: give each its own name" .name) -}}
{{- end -}}
{{- $relays = append $relays .name -}}
{{- end -}}
{{- if hasKey .Values.files "scorer.yaml" -}}
{{- fail "files has scorer.yaml, which the chart writes: put its settings into config" -}}
{{- end -}}
{{- end -}}

{{/* The content of publisher.yaml of a relay, as YAML. Arguments: root, relay, config (that of the scorers). */}}
{{- define "scorestream.relayConfig" -}}
{{- $relay := include "scorestream.withoutNulls" .relay.config | fromYaml -}}
{{- $region := .config.region | default "" -}}
{{- $far := dig "source" "region" "" $relay -}}
{{- $source := dict "region" $far "topics" (list .config.output.topic) "bootstrap_servers" "" -}}
{{- $_ := set $source "security" (include "scorestream.security" (dict "root" .root "folder" "/run/secrets/source") | fromYaml) -}}
{{- $destination := dict "region" $region "bootstrap_servers" .config.kafka.bootstrap_servers "topic" "{topic}.{region}" -}}
{{- $_ := set $destination "security" (include "scorestream.security" (dict "root" .root "folder" "/run/secrets/destination") | fromYaml) -}}
{{- $derived := dict "name" (printf "%s.%s-to-%s" .config.name $far $region) "source" $source "destination" $destination -}}
{{- $_ := set $derived "checkpoint_topic" (printf "%s.checkpoints" .config.name) -}}
{{- $_ := set $derived "http" (dict "listen" "0.0.0.0:9474") -}}
{{- mergeOverwrite $derived $relay | toYaml -}}
{{- end -}}
