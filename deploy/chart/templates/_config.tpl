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

{{/* Reject settings that templates need and cannot use. Argument: the map `config`, without nulls. Writes nothing. */}}
{{- define "scorestream.checkUsedSettings" -}}
{{- $config := . -}}
{{- range $path := list "name" "region" "input.start" "output.topic" "dead_letter.topic" "model.source" "model.device" "kafka.bootstrap_servers" "http.listen" "schema_registry.url" "tracing.endpoint" "labels.topic" "features.topic" -}}
{{- $keys := splitList "." $path -}}
{{- $section := ternary $config (get $config (first $keys) | default dict) (eq (len $keys) 1) -}}
{{- if hasKey $section (last $keys) -}}
{{- $value := get $section (last $keys) -}}
{{- if not (kindIs "string" $value) -}}
{{- fail (printf "config.%s is %s, which is not a text: write a text, in quotes" $path (toJson $value)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $topics := dig "input" "topics" (list) $config -}}
{{- if not (kindIs "slice" $topics) -}}
{{- fail (printf "config.input.topics is %s, but it is a list: write [%s]" (toJson $topics) (toString $topics)) -}}
{{- end -}}
{{- if not $topics -}}
{{- fail "config.input.topics is empty: list the topics that the model's events are read from" -}}
{{- end -}}
{{- range $topics -}}
{{- if not (kindIs "string" .) -}}
{{- fail (printf "config.input.topics has %s, which is not a text: write the name of the topic, in quotes" (toJson .)) -}}
{{- end -}}
{{- end -}}
{{- range $name, $table := dig "tables" (dict) $config -}}
{{- if not (kindIs "string" $table.topic) -}}
{{- fail (printf "config.tables.%s.topic is %s, which is not a text: write the name of the topic, in quotes" $name (toJson $table.topic)) -}}
{{- end -}}
{{- end -}}
{{- $endpoints := dig "model" "endpoints" (list) $config -}}
{{- if not (kindIs "slice" $endpoints) -}}
{{- fail (printf "config.model.endpoints is %s, but it is a list: write [\"%s\"]" (toJson $endpoints) (toString $endpoints)) -}}
{{- end -}}
{{- $source := dig "model" "source" "" $config -}}
{{- if not $source -}}
{{- fail "config.model.source is empty: set it to the repository of the model, such as registry.example.com/team/my-model" -}}
{{- end -}}
{{- if contains "://" $source -}}
{{- fail (printf "config.model.source is %s, but a repository has no scheme: write %s" $source (regexReplaceAll "^.*://" $source "")) -}}
{{- end -}}
{{- $name := last (splitList "/" $source) -}}
{{- if contains "@" $name -}}
{{- fail (printf "config.model.source is %s, but a repository has no digest: write %s, and set config.model.tag to the digest" $source (regexReplaceAll "@[^/]*$" $source "")) -}}
{{- end -}}
{{- if and (contains ":" $name) (contains "/" $source) -}}
{{- fail (printf "config.model.source is %s, but a repository has no tag: write %s, and set config.model.tag to %s" $source (regexReplaceAll ":[^/]*$" $source "") (last (splitList ":" $name))) -}}
{{- end -}}
{{- end -}}

{{/*
Reject a secret in settings, because a ConfigMap can be read by everybody who can read the namespace. Keys are those that the product
never prints. Arguments: path (such as `config`), value, remedy. Writes nothing.
*/}}
{{- define "scorestream.checkNoSecrets" -}}
{{- $path := .path -}}
{{- $remedy := .remedy -}}
{{- if kindIs "map" .value -}}
{{- range $key, $value := .value -}}
{{- include "scorestream.checkNoSecrets" (dict "path" (printf "%s.%s" $path $key) "value" $value "remedy" $remedy) -}}
{{- end -}}
{{- else if .value -}}
{{- $key := lower $path -}}
{{- $isSecret := and (regexMatch "passw|passphrase|secret|token|key\\.pem|jaas|credential|user\\.info|kinit\\.cmd|oauthbearer\\.(config|extensions)$|endpoint\\.query" $key) (not (regexMatch "(_file|\\.location|\\.url|\\.source|\\.id)$" $key)) -}}
{{- /* ${NAME} is replaced by an environment variable of the pod. */ -}}
{{- $isVariable := and (regexMatch "(^|:)[$][{][A-Za-z0-9_]+[}]$" (toString .value)) (not (hasSuffix "security.password" $key)) -}}
{{- if and $isSecret (not $isVariable) -}}
{{- fail (printf "%s is a secret, and would be readable in a ConfigMap: remove it; %s" $path $remedy) -}}
{{- end -}}
{{- if regexMatch "://[^/@]*:[^/@]*@" (toString .value) -}}
{{- fail (printf "%s is a URL with a password, and would be readable in a ConfigMap: remove the password; %s" $path $remedy) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Reject a setting that names a file beside scorer.yaml which the values do not have. A file can also be mounted there by
`extraVolumeMounts`. Arguments: root, config (that of the scorers). Writes nothing.
*/}}
{{- define "scorestream.checkFiles" -}}
{{- $config := .config -}}
{{- $mounted := list -}}
{{- range $pod := list .root.Values.scorer .root.Values.shadow .root.Values.rolloutController .root.Values.toolbox .root.Values.training -}}
{{- range $pod.extraVolumeMounts -}}
{{- $mounted = append $mounted .mountPath -}}
{{- end -}}
{{- end -}}
{{- $named := dict -}}
{{- range $path := list "input.schema_file" "model.ca_file" "model.policy" "model.server_tls.ca_file" "model.server_tls.certificate_file" "model.server_tls.key_file" "kafka.security.password_file" "kafka.security.ca_file" "kafka.security.certificate_file" "kafka.security.key_file" "kafka.security.key_password_file" "rollout.key_file" "rollout.password_file" -}}
{{- $value := $config -}}
{{- range $key := splitList "." $path -}}
{{- $value = ternary (get ($value | default dict) $key) "" (kindIs "map" ($value | default dict)) -}}
{{- end -}}
{{- $_ := set $named $path $value -}}
{{- end -}}
{{- range $section := list "kafka" "schema_registry" -}}
{{- range $key, $value := dig $section "extra" dict $config -}}
{{- if and (hasPrefix "ssl." $key) (hasSuffix ".location" $key) -}}
{{- $_ := set $named (printf "%s.extra.%s" $section $key) $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $path, $value := $named -}}
{{- $file := toString ($value | default "") -}}
{{- if and $file (not (contains "/" $file)) (not (hasKey $.root.Values.files $file)) (not (has (printf "/etc/scorestream/%s" $file) $mounted)) -}}
{{- fail (printf "config.%s is %s, but files has no %s: add it to files, or mount it with extraVolumes and write its path" $path $file $file) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A number of bytes, such as 2GiB, as an integer; empty if it is none. Argument: the number. */}}
{{- define "scorestream.bytes" -}}
{{- if kindIs "string" . -}}
{{- $units := dict "" 1 "b" 1 "kb" 1000 "mb" 1000000 "gb" 1000000000 "tb" 1000000000000 "kib" 1024 "mib" 1048576 "gib" 1073741824 "tib" 1099511627776 -}}
{{- $unit := regexFind "[a-z]*$" (lower .) -}}
{{- $number := trim (trimSuffix $unit (lower .)) -}}
{{- if and (hasKey $units $unit) (regexMatch "^[0-9]+([.][0-9]+)?$" $number) -}}
{{- mulf (float64 $number) (get $units $unit) | int64 -}}
{{- end -}}
{{- else -}}
{{- int64 . -}}
{{- end -}}
{{- end -}}

{{/* The content of scorer.yaml, as YAML. Argument: root. */}}
{{- define "scorestream.config" -}}
{{- $config := include "scorestream.withoutNulls" .Values.config | fromYaml -}}
{{- include "scorestream.checkUsedSettings" $config -}}
{{- $name := $config.name | default (printf "%s.%s" .Release.Namespace .Release.Name) -}}
{{- /* The rest of the volume is room for one version while it is unpacked from a container image, and for the file system's blocks. */ -}}
{{- $cache := div (mul 7 (int64 (include "scorestream.mebibytes" .Values.cache.size))) 10 -}}
{{- /* `helm lint` continues after a failure: the empty texts and lists are for it. */ -}}
{{- $model := dict "source" "" "cache" "/var/cache/scorestream" "cache_bytes" (printf "%dMiB" $cache) -}}
{{- /* The cache holds the version in use, the one before it, the next one and a canary. */ -}}
{{- $_ := set $model "max_bytes" (printf "%dMiB" (min 8192 (div $cache 8))) -}}
{{- $_ := set $model "device" (ternary "cuda" "cpu" .Values.gpu.enabled) -}}
{{- if or .Values.registry.ca.secret .Values.registry.ca.configMap -}}
{{- $_ := set $model "ca_file" (printf "/run/secrets/registry-ca/%s" .Values.registry.ca.key) -}}
{{- end -}}
{{- $kafka := dict "bootstrap_servers" .Values.kafka.bootstrapServers -}}
{{- $_ := set $kafka "security" (include "scorestream.security" (dict "root" . "folder" "/run/secrets/kafka") | fromYaml) -}}
{{- $derived := dict "name" $name "kafka" $kafka "model" $model "input" (dict "topics" list) -}}
{{- $_ := set $derived "output" (dict "topic" (printf "%s.scores" $name)) -}}
{{- $_ := set $derived "dead_letter" (dict "topic" (printf "%s.dead" $name)) -}}
{{- $_ := set $derived "http" (dict "listen" "0.0.0.0:9464") -}}
{{- with .Values.schemaRegistry -}}
{{- if .secret -}}
{{- $extra := dict -}}
{{- if .secretKeys.ca -}}
{{- $_ := set $extra "ssl.ca.location" (printf "/run/secrets/schema-registry/%s" .secretKeys.ca) -}}
{{- end -}}
{{- if .secretKeys.username -}}
{{- $_ := set $extra "basic.auth.user.info" "${SCHEMA_REGISTRY_USERNAME}:${SCHEMA_REGISTRY_PASSWORD}" -}}
{{- end -}}
{{- $_ := set $derived "schema_registry" (dict "extra" $extra) -}}
{{- end -}}
{{- end -}}
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
{{- $remedy := "passwords of Kafka are in the Secrets of kafka.secrets, other secrets in extraEnv, and the setting is written as ${NAME}" -}}
{{- include "scorestream.checkNoSecrets" (dict "path" "config" "value" .Values.config "remedy" $remedy) -}}
{{- include "scorestream.checkNoSecrets" (dict "path" "training.config" "value" .Values.training.config "remedy" "training.signing names the Secret with the key's password") -}}
{{- range .Values.relays -}}
{{- include "scorestream.checkNoSecrets" (dict "path" (printf "config of the relay %s" .name) "value" .config "remedy" $remedy) -}}
{{- end -}}
{{- $mebibytes := include "scorestream.mebibytes" .Values.cache.size | int64 -}}
{{- if lt $mebibytes 256 -}}
{{- fail (printf "cache.size is %s, which holds no four versions of a usual size: set it to at least 256Mi" .Values.cache.size) -}}
{{- end -}}
{{- $cache := include "scorestream.bytes" $config.model.cache_bytes -}}
{{- $version := include "scorestream.bytes" $config.model.max_bytes -}}
{{- if and $cache (gt (int64 $cache) (mul $mebibytes 1048576)) -}}
{{- fail (printf "config.model.cache_bytes is %v, but cache.size is %s, and the kubelet would end pods: set a larger cache.size, and remove config.model.cache_bytes" $config.model.cache_bytes .Values.cache.size) -}}
{{- end -}}
{{- if and $cache $version (gt (int64 $version) (int64 $cache)) -}}
{{- fail (printf "config.model.max_bytes is %v, but model.cache_bytes is %v, so that such a version never fits: set a larger cache.size" $config.model.max_bytes $config.model.cache_bytes) -}}
{{- end -}}
{{- if and .Values.registry.pullSecret (not .Values.registry.pushSecret) -}}
{{- range $enabled, $value := dict "rolloutController.enabled" .Values.rolloutController.enabled "training.enabled" .Values.training.enabled -}}
{{- if $value -}}
{{- fail (printf "%s is true, but registry.pushSecret is empty, so that the registry would reject writes: set it to the Secret of a user who may push" $enabled) -}}
{{- end -}}
{{- end -}}
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
{{- if and .Values.schemaRegistry.secret (not (dig "schema_registry" "url" "" $config)) -}}
{{- fail "schemaRegistry.secret is set, but config.schema_registry.url is empty: set it to the URL of the schema registry" -}}
{{- end -}}
{{- include "scorestream.checkFiles" (dict "root" . "config" $config) -}}
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
{{- if and (not .Values.autoscaling.enabled) (not (kindIs "invalid" .Values.autoscaling.pausedReplicas)) -}}
{{- fail (printf "autoscaling.pausedReplicas is %v, but autoscaling.enabled is false: set scorer.replicas, and remove autoscaling.pausedReplicas" .Values.autoscaling.pausedReplicas) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled .Values.strimzi.enabled .Values.strimzi.partitions -}}
{{- if gt (int .Values.autoscaling.maxReplicas) (int .Values.strimzi.partitions) -}}
{{- fail (printf "autoscaling.maxReplicas is %v, but strimzi.partitions is %v, so that the other scorers would be idle: lower autoscaling.maxReplicas" .Values.autoscaling.maxReplicas .Values.strimzi.partitions) -}}
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
