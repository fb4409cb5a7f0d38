{{/*
The pod of a worker, for a Deployment and for a LeaderWorkerSet.
(dict "root" $ "pool" NAME "values" VALUES "follower" false)
*/}}
{{- define "tokenwire.worker.template" -}}
{{- $values := .values }}
{{- $component := .follower | ternary "follower" "worker" }}
{{- $nodes := int $values.multiNode.nodes }}
metadata:
  labels:
    {{- include "tokenwire.selector" (dict "root" .root "component" $component "pool" .pool) | nindent 4 }}
  {{- with $values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  # Service link variables would be read as options: TOKENWIRE_LISTEN is one.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add $values.drain.timeoutSeconds 15 }}
  securityContext:
    {{- include "tokenwire.podSecurity" .root | nindent 4 }}
  {{- include "tokenwire.pullSecrets" .root | nindent 2 }}
  {{- include "tokenwire.placement" $values | nindent 2 }}
  {{- with $values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  containers:
    - name: {{ $component }}
      image: {{ include "tokenwire.image" (dict "root" .root "image" $values.image) }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- if .follower }}
      command: [vllm]
      args:
        - serve
        - {{ $values.model | quote }}
        - --headless
        {{- include "tokenwire.worker.engineArgs" (dict "values" $values "rank" "$(LWS_WORKER_INDEX)") | nindent 8 }}
      {{- else }}
      args:
        - worker
        {{- with $values.model }}
        - {{ . | quote }}
        {{- end }}
        - --listen=0.0.0.0:50051
        - --health-listen=0.0.0.0:50052
        {{- if .root.Values.monitoring.podMonitor }}
        - --metrics-listen=0.0.0.0:50053
        {{- end }}
        - --cache-dir=/cache
        - --drain-timeout={{ $values.drain.timeoutSeconds }}
        {{- with $values.servedModelName }}
        - --served-model-name={{ . }}
        {{- end }}
        {{- if ne $values.engine "vllm" }}
        - --engine={{ $values.engine }}
        {{- end }}
        {{- if $values.kvEvents }}
        - --kv-events
        {{- end }}
        {{- include "tokenwire.peerAuth.args" .root | nindent 8 }}
        {{- include "tokenwire.options" $values.options | nindent 8 }}
        {{- range $values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
        {{- if or $values.engineArgs (gt $nodes 1) }}
        - --
        {{- include "tokenwire.worker.engineArgs" (dict "values" $values "rank" "0") | nindent 8 }}
        {{- end }}
      {{- end }}
      env:
        - {name: HOME, value: /tmp}
        - {name: HF_HOME, value: /models/huggingface}
        - {name: VLLM_CACHE_ROOT, value: /cache/vllm}
        - {name: TRITON_CACHE_DIR, value: /cache/triton}
        - {name: TORCHINDUCTOR_CACHE_DIR, value: /cache/inductor}
        - {name: VLLM_NO_USAGE_STATS, value: "1"}
        {{- if $values.offline }}
        - {name: HF_HUB_OFFLINE, value: "1"}
        {{- end }}
        {{- with $values.hubToken }}
        {{- if .existingSecret }}
        - {name: HF_TOKEN_PATH, value: /etc/tokenwire/hub-token/{{ .key }}}
        {{- end }}
        {{- end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if .follower }}
      {{- if include "tokenwire.canSleep" .root }}
      # The leader drains first, which needs its whole engine.
      lifecycle:
        preStop:
          sleep: {seconds: {{ $values.drain.timeoutSeconds }}}
      {{- end }}
      {{- else }}
      ports:
        - {name: grpc, containerPort: 50051}
        - {name: health, containerPort: 50052}
        {{- if .root.Values.monitoring.podMonitor }}
        - {name: metrics, containerPort: 50053}
        {{- end }}
      startupProbe:
        grpc: {port: 50052, service: readiness}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ mul 12 (int $values.probes.startupMinutes) }}
      readinessProbe:
        grpc: {port: 50052, service: readiness}
        periodSeconds: 5
        timeoutSeconds: 5
      livenessProbe:
        grpc: {port: 50052, service: liveness}
        periodSeconds: 10
        timeoutSeconds: 10
        failureThreshold: 6
      {{- end }}
      resources:
        {{- $gpu := dict }}
        {{- if $values.gpu.count }}
        {{- $gpu = dict $values.gpu.resourceName $values.gpu.count }}
        {{- end }}
        requests: {{- toYaml (merge (deepCopy $gpu) ($values.resources.requests | default dict)) | nindent 10 }}
        limits: {{- toYaml (merge (deepCopy $gpu) ($values.resources.limits | default dict)) | nindent 10 }}
      securityContext:
        {{- include "tokenwire.containerSecurity" $values.readOnlyRootFilesystem | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: cache, mountPath: /cache}
        - {name: shared-memory, mountPath: /dev/shm}
        - {name: models, mountPath: /models{{ if and (eq $values.modelCache.type "existingClaim") $values.modelCache.readOnly }}, readOnly: true{{ end }}}
        {{- include "tokenwire.peerAuth.mounts" .root | nindent 8 }}
        {{- if $values.hubToken.existingSecret }}
        - {name: hub-token, mountPath: /etc/tokenwire/hub-token, readOnly: true}
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    - name: cache
      emptyDir: {}
    - name: shared-memory
      emptyDir: {medium: Memory, sizeLimit: {{ $values.sharedMemory }}}
    - name: models
      {{- with $values.modelCache }}
      {{- if eq .type "emptyDir" }}
      emptyDir: {sizeLimit: {{ .sizeLimit }}}
      {{- else }}
      persistentVolumeClaim: {claimName: {{ eq .type "pvc" | ternary (printf "%s-models" (include "tokenwire.worker.name" $)) .claim }}}
      {{- end }}
      {{- end }}
    {{- include "tokenwire.peerAuth.volumes" (dict "root" .root "secret" (include "tokenwire.peerAuth.workerSecret" .root)) | nindent 4 }}
    {{- with $values.hubToken.existingSecret }}
    - name: hub-token
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* vLLM's own arguments: those of the pool, and the node's rank among several. */}}
{{- define "tokenwire.worker.engineArgs" -}}
{{- range .values.engineArgs }}
- {{ . | quote }}
{{- end }}
{{- if gt (int .values.multiNode.nodes) 1 }}
- --nnodes={{ .values.multiNode.nodes }}
- --node-rank={{ .rank }}
- --master-addr=$(LWS_LEADER_ADDRESS)
{{- end }}
{{- end }}
