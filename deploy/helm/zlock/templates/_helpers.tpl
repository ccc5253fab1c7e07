{{/* Name of the objects. Kubernetes adds 11 characters to a StatefulSet's name, in a label of at most 63. */}}
{{- define "zlock.name" -}}
{{- $own := ternary .Release.Name (printf "%s-zlock" .Release.Name) (contains "zlock" .Release.Name) -}}
{{- default $own .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "zlock.selector" -}}
app.kubernetes.io/name: zlock
app.kubernetes.io/instance: {{ quote .Release.Name }}
{{- end }}

{{- define "zlock.labels" -}}
{{ include "zlock.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Port of the pods for HTTP clients. */}}
{{- define "zlock.http" -}}
{{ ternary 7443 7001 .Values.tls.client.enabled }}
{{- end }}

{{/* Term of an anti-affinity; takes a list of the chart's context and the topology key. */}}
{{- define "zlock.apart" -}}
topologyKey: {{ index . 1 }}
labelSelector:
  matchLabels: {{- include "zlock.selector" (index . 0) | nindent 4 }}
{{- end }}

{{/* Environment variables that the chart sets: a list in YAML. */}}
{{- define "zlock.env" -}}
{{- $name := include "zlock.name" . -}}
{{- $host := printf "%s-{0..%d}.%s-peers" $name (sub (int .Values.replicaCount) 1) $name -}}
# The first pod is node 1.
- { name: ZLOCK_NODE_ID, value: hostname }
- { name: ZLOCK_NODE_MEMBERS, value: "{{ $host }}:7101/{{ $host }}:{{ include "zlock.http" . }}" }
# Not the volume itself: that belongs to root, and a node makes its data directory private.
- { name: ZLOCK_NODE_DATA_DIR, value: /var/lib/zlock/data }
# At a stop the node serves on while the services forget its address.
- { name: ZLOCK_NODE_DRAIN_DELAY, value: 5s }
- { name: ZLOCK_NODE_DRAIN_TIME, value: 5s }
# With it, /zlock in the container is an operator.
- { name: ZLOCK_ADMIN_SOCKET, value: /run/zlock/admin.sock }
{{- if .Values.tls.client.enabled }}
- { name: ZLOCK_HTTP_LISTEN, value: "127.0.0.1:7001" }
- { name: ZLOCK_HTTP_TLS_LISTEN, value: "0.0.0.0:7443" }
- { name: ZLOCK_ZOOKEEPER_TLS_LISTEN, value: "0.0.0.0:2281" }
- { name: ZLOCK_TLS_CERTIFICATE, value: /etc/zlock/tls/tls.crt }
- { name: ZLOCK_TLS_KEY, value: /etc/zlock/tls/tls.key }
{{- if eq .Values.tls.client.auth "want" }}
- { name: ZLOCK_TLS_CLIENT_CA, value: /etc/zlock/tls/ca.crt }
{{- end }}
{{- else }}
- { name: ZLOCK_ZOOKEEPER_LISTEN, value: "0.0.0.0:2181" }
{{- end }}
{{- if .Values.tls.quorum.enabled }}
# All pods share the certificate, so it cannot name its node. The authority must sign for members only.
- { name: ZLOCK_PEERS_TLS, value: require }
- { name: ZLOCK_PEERS_TLS_NAMES, value: any }
- { name: ZLOCK_PEERS_TLS_CERTIFICATE, value: /etc/zlock/peers/tls.crt }
- { name: ZLOCK_PEERS_TLS_KEY, value: /etc/zlock/peers/tls.key }
- { name: ZLOCK_PEERS_TLS_CA, value: /etc/zlock/peers/ca.crt }
{{- end }}
{{- end }}
