{{- /* What the agent needs of its node: "nothing" (observe), "seeing", or "acting": it
throttles pods, and only a privileged container can write cgroups. Evictions
and marks are writes to the API server. */ -}}
{{- define "plimsoll.agent.needs" -}}
{{- include "plimsoll.configs" . -}}
{{- $movers := .Values.agent.config.vgdp | default dict -}}
{{- $others := .Values.agent.config.throttle | default dict -}}
{{- if eq .Values.profile "observe" -}}
nothing
{{- else if and (eq (toString $movers.dryRun) "false") (ne (toString $movers.enabled) "false") -}}
acting
{{- else if and (eq (toString $others.dryRun) "false") (ne (toString $others.enabled) "false") -}}
acting
{{- else -}}
seeing
{{- end -}}
{{- end -}}

{{- /* The AgentConfiguration: where the host's file systems are mounted, the namespaces
of the Veleros that the controller is told of, which are never evicted, and the values.
A privileged container has the host's cgroups at their own place. */ -}}
{{- define "plimsoll.agent.config" -}}
{{- $needs := include "plimsoll.agent.needs" . }}
{{- $paths := dict "sysfs" "/host/sys" }}
{{- if eq $needs "nothing" }}
{{- $_ := set $paths "procfs" "/host/proc" }}
{{- end }}
{{- if ne $needs "acting" }}
{{- $_ := set $paths "cgroupfs" "/host/sys/fs/cgroup" }}
{{- end }}
{{- $config := mergeOverwrite (dict "paths" $paths) (deepCopy .Values.agent.config) }}
{{- with .Values.controller.config.velero }}
{{- $eviction := $config.eviction | default dict }}
{{- $protect := $eviction.protect | default dict }}
{{- $namespaces := list "kube-system" "velero" "openshift-adp" "plimsoll-system" }}
{{- if kindIs "slice" $protect.namespaces }}
{{- $namespaces = $protect.namespaces }}
{{- end }}
{{- range . }}
{{- $namespaces = append $namespaces .namespace }}
{{- end }}
{{- $_ := set $protect "namespaces" ($namespaces | compact | uniq) }}
{{- $_ := set $eviction "protect" $protect }}
{{- $_ := set $config "eviction" $eviction }}
{{- end }}
apiVersion: plimsoll.dev/v1alpha1
kind: AgentConfiguration
{{ toYaml $config }}
{{- end -}}

{{- /* The pod of an agent, or of its examination: a dict of the root, the container's
name, args, those of the values after all others, further fields of the container,
the containers beside it, and the tolerations beside those of our taints. */ -}}
{{- define "plimsoll.agent.pod" -}}
{{- $needs := include "plimsoll.agent.needs" .root -}}
{{- $observe := eq $needs "nothing" -}}
{{- $values := .root.Values.agent -}}
serviceAccountName: plimsoll-agent
priorityClassName: {{ include "plimsoll.priorityClass" .root }}
hostPID: {{ not $observe }}
{{- if $observe }}
securityContext: {{- include "plimsoll.unprivilegedPod" . | nindent 2 }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{ include "plimsoll.placement" (dict "values" $values "tolerations" .tolerations) }}
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
      {{- range .more }}
      - {{ . | quote }}
      {{- end }}
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
      {{- with $values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with .fields }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    resources: {{- toYaml $values.resources | nindent 6 }}
    securityContext:
      {{- if $observe }}
      {{- include "plimsoll.unprivileged" . | nindent 6 }}
      {{- else if eq $needs "acting" }}
      # It throttles data movers: it writes the cgroups of the host.
      privileged: true
      readOnlyRootFilesystem: true
      {{- else }}
      # It only sees (docs/install-kubernetes.md, "What the agent may do on its node").
      runAsUser: 0
      runAsGroup: 0
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL], add: {{ toJson $values.capabilities }}}
      seccompProfile: {type: RuntimeDefault}
      # AppArmor's default keeps a container from the files of other processes.
      appArmorProfile: {type: Unconfined}
      # SELinux's container_t keeps it from the host's files, too.
      seLinuxOptions: {type: spc_t}
      {{- end }}
    volumeMounts:
      - {name: config, mountPath: /etc/plimsoll, readOnly: true}
      # With what is mounted below it: the cgroups.
      - {name: sys, mountPath: /host/sys, readOnly: true, recursiveReadOnly: IfPossible}
      {{- if $observe }}
      - {name: proc, mountPath: /host/proc, readOnly: true, recursiveReadOnly: IfPossible}
      {{- end }}
      - {name: lib, mountPath: /var/lib/plimsoll}
      - {name: run, mountPath: /run/plimsoll}
      {{- with $values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- with .beside }}
  {{- toYaml . | nindent 2 }}
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
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
