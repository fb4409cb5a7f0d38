{{- define "tokenwire.fullname" -}}
{{- $default := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- .Values.fullnameOverride | default $default | trunc 30 | trimSuffix "-" -}}
{{- end }}

{{/* Labels of pods: (dict "root" $ "component" "coordinator"), and "pool" for workers. No versions: a new chart restarts no pod. */}}
{{- define "tokenwire.selector" -}}
app.kubernetes.io/name: tokenwire
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
tokenwire/pool: {{ . }}
{{- end }}
{{- end }}

{{- define "tokenwire.labels" -}}
{{ include "tokenwire.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "tokenwire.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "tokenwire.labels" . | nindent 2 }}
{{- end }}

{{- define "tokenwire.image" -}}
{{- $image := .image -}}
{{- with .root.Values.imageRegistry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* The security context of Kubernetes' "restricted" profile for a pod and a container. */}}
{{- define "tokenwire.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tokenwire.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: {{ . }}
capabilities: {drop: [ALL]}
{{- end }}

{{/* Scheduling of pods: the same fields for both halves. */}}
{{- define "tokenwire.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "tokenwire.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A pool's values: the defaults, overridden by its own. (dict "root" $ "pool" NAME) */}}
{{- define "tokenwire.pool" -}}
{{- mustMergeOverwrite (deepCopy .root.Values.workerDefaults) (deepCopy (get .root.Values.workers .pool)) | toYaml -}}
{{- end }}

{{/* The first name under which a pool serves its model. (dict "root" $ "pool" NAME) */}}
{{- define "tokenwire.pool.model" -}}
{{- $values := include "tokenwire.pool" . | fromYaml -}}
{{- $values.servedModelName | default $values.model | default (include "tokenwire.embeddedModel" .) -}}
{{- end }}

{{- define "tokenwire.worker.name" -}}
{{- include "tokenwire.fullname" .root }}-{{ .pool -}}
{{- end }}

{{/* Not the pool's name: a LeaderWorkerSet creates a service of that name. */}}
{{- define "tokenwire.worker.service" -}}
{{- include "tokenwire.worker.name" . }}-grpc
{{- end }}

{{/* preStop.sleep is enabled by default since 1.30. "yes" or empty. */}}
{{- define "tokenwire.canSleep" -}}
{{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}yes{{ end -}}
{{- end }}

{{/* The longest startup time of all pools that scale to zero, in seconds; empty if none does. */}}
{{- define "tokenwire.coldStart" -}}
{{- $longest := 0 -}}
{{- range $pool, $_ := .Values.workers -}}
{{- $values := include "tokenwire.pool" (dict "root" $ "pool" $pool) | fromYaml -}}
{{- if and $values.autoscaling.enabled (eq (int $values.autoscaling.minReplicas) 0) -}}
{{- $longest = max $longest (mul 60 (int $values.probes.startupMinutes)) -}}
{{- end -}}
{{- end -}}
{{- if $longest }}{{ $longest }}{{ end -}}
{{- end }}

{{- define "tokenwire.peerAuth.coordinatorSecret" -}}
{{- .Values.peerAuth.tls.coordinatorSecret | default (printf "%s-peer-coordinator" (include "tokenwire.fullname" .)) -}}
{{- end }}

{{- define "tokenwire.peerAuth.workerSecret" -}}
{{- .Values.peerAuth.tls.workerSecret | default (printf "%s-peer-worker" (include "tokenwire.fullname" .)) -}}
{{- end }}

{{/* Options, mounts and volumes for peer authentication, the same for both halves except the secret. */}}
{{- define "tokenwire.peerAuth.args" -}}
{{- if .Values.peerAuth.tls.enabled }}
- --peer-cert=/etc/tokenwire/peer-tls/tls.crt
- --peer-key=/etc/tokenwire/peer-tls/tls.key
- --peer-ca=/etc/tokenwire/peer-tls/ca.crt
{{- end }}
{{- with .Values.peerAuth.token }}
{{- if .existingSecret }}
- --peer-token-file=/etc/tokenwire/peer-token/{{ .key }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tokenwire.peerAuth.mounts" -}}
{{- if .Values.peerAuth.tls.enabled }}
- {name: peer-tls, mountPath: /etc/tokenwire/peer-tls, readOnly: true}
{{- end }}
{{- if .Values.peerAuth.token.existingSecret }}
- {name: peer-token, mountPath: /etc/tokenwire/peer-token, readOnly: true}
{{- end }}
{{- end }}

{{/* (dict "root" $ "secret" NAME) */}}
{{- define "tokenwire.peerAuth.volumes" -}}
{{- if .root.Values.peerAuth.tls.enabled }}
- name: peer-tls
  secret: {secretName: {{ .secret }}, defaultMode: 0440}
{{- end }}
{{- with .root.Values.peerAuth.token }}
{{- if .existingSecret }}
- name: peer-token
  secret: {secretName: {{ .existingSecret }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- end }}

{{- define "tokenwire.operationsKeySecret" -}}
{{- .Values.coordinator.operationsKey.existingSecret | default (printf "%s-operations-key" (include "tokenwire.fullname" .)) -}}
{{- end }}

{{- define "tokenwire.tlsSecret" -}}
{{- if .Values.coordinator.tls.existingSecret -}}
{{- .Values.coordinator.tls.existingSecret -}}
{{- else if .Values.coordinator.tls.certManager.enabled -}}
{{- include "tokenwire.fullname" . }}-tls
{{- end -}}
{{- end }}

{{- define "tokenwire.egress.dns" -}}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
{{- end }}

{{/* Peers: the public internet, of which a picture may be fetched, in the sense of coordinator/media/addresses.py. */}}
{{- define "tokenwire.egress.public" -}}
- ipBlock:
    cidr: 0.0.0.0/0
    except:
      - 0.0.0.0/8
      - 10.0.0.0/8
      - 100.64.0.0/10
      - 127.0.0.0/8
      - 168.63.129.16/32
      - 169.254.0.0/16
      - 172.16.0.0/12
      - 192.0.0.0/24
      - 192.0.2.0/24
      - 192.88.99.0/24
      - 192.168.0.0/16
      - 198.18.0.0/15
      - 198.51.100.0/24
      - 203.0.113.0/24
      - 224.0.0.0/4
      - 240.0.0.0/4
- ipBlock:
    cidr: 2000::/3
    except:
      - 2001::/23
      - 2001:db8::/32
      - 2002::/16
      - 3fff::/20
{{- end }}

{{/* A map of options as arguments. JSON writes large numbers as they are. */}}
{{- define "tokenwire.options" -}}
{{- range $name, $value := . }}
{{- if kindIs "bool" $value }}
{{- if $value }}
- --{{ $name }}
{{- end }}
{{- else }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}
- {{ printf "--%s=%s" $name (kindIs "string" . | ternary . (toJson .)) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
