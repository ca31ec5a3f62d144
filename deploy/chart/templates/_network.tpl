{{/* NetworkPolicies: what each component may reach is derived from its configuration. */}}

{{/*
An egress rule to the hosts of a comma-separated list of `host:port`. Destinations in the values replace derived ones: the namespace
of a Service (`NAME.NAMESPACE.svc`), any destination otherwise. Arguments: addresses, to, port (used where an address has none).
*/}}
{{- define "scorestream.egressRule" -}}
{{- $ports := list -}}
{{- $namespaces := list -}}
{{- $external := false -}}
{{- range $address := splitList "," .addresses -}}
{{- $host := regexReplaceAll ":[0-9]+$" (trim $address) "" -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" (trim $address)) | default (toString $.port) -}}
{{- $ports = append $ports $port -}}
{{- $labels := splitList "." $host -}}
{{- if and (gt (len $labels) 2) (eq (index $labels 2) "svc") -}}
{{- $namespaces = append $namespaces (index $labels 1) -}}
{{- else -}}
{{- $external = true -}}
{{- end -}}
{{- end -}}
- ports:
    {{- range $ports | uniq | sortAlpha }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- if .to }}
  to:
    {{- toYaml .to | nindent 4 }}
  {{- else if not $external }}
  to:
    {{- range $namespaces | uniq | sortAlpha }}
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: {{ . }}}
    {{- end }}
  {{- end }}
{{- end -}}

{{/* `host:port` of a URL. Argument: the URL. */}}
{{- define "scorestream.address" -}}
{{- $url := urlParse (regexReplaceAll "://[^/@]*@" . "://") -}}
{{- if contains ":" $url.host }}{{ $url.host }}{{ else }}{{ $url.host }}:{{ ternary "443" "80" (eq $url.scheme "https") }}{{ end -}}
{{- end -}}

{{/* Whether the registry of `model.source` is reached by HTTP without TLS. Argument: the configuration. */}}
{{- define "scorestream.plainHttp" -}}
{{- $registry := first (splitList "/" .model.source) -}}
{{- $plain := .model.plain_http | default false -}}
{{- if kindIs "slice" $plain }}{{ if has $registry $plain }}true{{ end }}{{ else if $plain }}true{{ end -}}
{{- end -}}

{{/* Egress rules for names (DNS). Argument: root. */}}
{{- define "scorestream.dnsRule" -}}
- to:
    {{- toYaml .Values.networkPolicy.dns.to | nindent 4 }}
  ports:
    - {protocol: UDP, port: {{ .Values.networkPolicy.dns.port }}}
    - {protocol: TCP, port: {{ .Values.networkPolicy.dns.port }}}
{{- end -}}

{{/*
NetworkPolicy of a component. Arguments:
  root, component
  port                  the port that Prometheus scrapes; none: no ingress
  config                the configuration of the scorer, whose services are reached; none: only names
  egress                further egress rules, as a list
*/}}
{{- define "scorestream.networkPolicy" -}}
{{- $policy := .root.Values.networkPolicy -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "scorestream.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "scorestream.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- if .port }}
  ingress:
    - from:
        {{- toYaml $policy.metrics.from | nindent 8 }}
      ports:
        - {protocol: TCP, port: {{ .port }}}
  {{- else }}
  ingress: []
  {{- end }}
  egress:
    {{- include "scorestream.dnsRule" .root | nindent 4 }}
    {{- with .config }}
    {{- include "scorestream.egressRule" (dict "addresses" .kafka.bootstrap_servers "port" 9092 "to" $policy.kafka.to) | nindent 4 }}
    {{- $port := ternary 80 443 (eq (include "scorestream.plainHttp" .) "true") }}
    {{- include "scorestream.egressRule" (dict "addresses" (first (splitList "/" .model.source)) "port" $port "to" $policy.registry.to) | nindent 4 }}
    {{- with dig "schema_registry" "url" "" . }}
    {{- include "scorestream.egressRule" (dict "addresses" (include "scorestream.address" .) "port" 443 "to" $policy.schemaRegistry.to) | nindent 4 }}
    {{- end }}
    {{- with dig "tracing" "endpoint" "" . }}
    {{- include "scorestream.egressRule" (dict "addresses" (include "scorestream.address" .) "port" 443 "to" $policy.tracing.to) | nindent 4 }}
    {{- end }}
    {{- with .model.endpoints }}
    {{- include "scorestream.egressRule" (dict "addresses" (join "," .) "port" 443 "to" $policy.modelServers.to) | nindent 4 }}
    {{- end }}
    {{- end }}
    {{- with .egress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $policy.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
