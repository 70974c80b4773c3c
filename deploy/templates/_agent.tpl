{{- /* The AgentConfiguration: the host's mounts by profile, and the values. */ -}}
{{- define "plimsoll.agent.config" -}}
{{- $paths := dict "sysfs" "/host/sys" }}
{{- if eq .Values.profile "observe" }}
{{- $paths = dict "procfs" "/host/proc" "sysfs" "/host/sys" "cgroupfs" "/host/sys/fs/cgroup" }}
{{- end }}
apiVersion: plimsoll.dev/v1alpha1
kind: AgentConfiguration
{{ mergeOverwrite (dict "paths" $paths) (deepCopy .Values.agent.config) | toYaml }}
{{- end -}}

{{- /* The pod of an agent, or of its examination: a dict of the root and the
container's name, args, and further fields of the container. */ -}}
{{- define "plimsoll.agent.pod" -}}
{{- $observe := eq .root.Values.profile "observe" -}}
{{- $values := .root.Values.agent -}}
serviceAccountName: plimsoll-agent
priorityClassName: plimsoll
hostPID: {{ not $observe }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ include "plimsoll.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
      {{- range .args }}
      - {{ . | quote }}
      {{- end }}
      - --config=/etc/plimsoll/agent.yaml
      - --node=$(NODE_NAME)
      # The network reaches metrics and health; port-forward, from the pod itself, all pages.
      - --web.listen-address=[$(POD_IP)]:9773
      - --web.listen-address=127.0.0.1:9773
    env:
      - name: NODE_NAME
        valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
      - name: POD_IP
        valueFrom: {fieldRef: {fieldPath: status.podIP}}
      {{- if $observe }}
      # Where a process that is not root has the local socket and the state.
      - {name: XDG_RUNTIME_DIR, value: /run}
      - {name: XDG_STATE_HOME, value: /var/lib}
      {{- end }}
    {{- with .fields }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    resources: {{- toYaml $values.resources | nindent 6 }}
    securityContext:
      {{- if $observe }}
      {{- include "plimsoll.unprivileged" . | nindent 6 }}
      {{- else }}
      privileged: true
      readOnlyRootFilesystem: true
      {{- end }}
    volumeMounts:
      - {name: config, mountPath: /etc/plimsoll, readOnly: true}
      - {name: sys, mountPath: /host/sys, readOnly: true}
      {{- if $observe }}
      - {name: proc, mountPath: /host/proc, readOnly: true}
      {{- end }}
      - {name: lib, mountPath: /var/lib/plimsoll}
      - {name: run, mountPath: /run/plimsoll}
      {{- with $values.volumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: config
    configMap: {name: plimsoll-agent}
  # The host's: a pod's network namespace has only the pod's own devices.
  - name: sys
    hostPath: {path: /sys, type: Directory}
  {{- if $observe }}
  - name: proc
    hostPath: {path: /proc, type: Directory}
  - name: lib
    emptyDir: {}
  {{- else }}
  # State that outlives the pod, and the sockets of outer plugins.
  - name: lib
    hostPath: {path: /var/lib/plimsoll, type: DirectoryOrCreate}
  {{- end }}
  - name: run
    emptyDir: {}
  {{- with $values.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
