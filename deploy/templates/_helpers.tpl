{{- /* The objects of a manifest, a list of the root and the file, as they stand there
and with the labels. A third element: only those whose name ends so. Namespaces are left
out: one is the release's, which Helm makes, the other stands in namespace.yaml. */ -}}
{{- define "plimsoll.manifest" -}}
{{- $root := index . 0 -}}
{{- $end := index (append . "") 2 -}}
{{- $metadata := printf "metadata:\n  labels:%s\n" (include "plimsoll.labels" $root | nindent 4) -}}
{{- range splitList "\n---\n" ($root.Files.Get (index . 1)) }}
{{- $o := fromYaml . }}
{{- if and (ne $o.kind "Namespace") (hasSuffix $end $o.metadata.name) }}
---
{{ regexReplaceAllLiteral "(?m)^metadata:\n" (. | trim) $metadata }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The version in which the cluster serves MutatingAdmissionPolicies; empty: not at
all, or not for sure. Without a cluster Helm assumes all kinds that it knows, which
extensions/v1beta1 shows: no cluster has had that since 1.22. Then the version of
Kubernetes decides, and v1beta1, which is off by default, must be asked for. */ -}}
{{- define "plimsoll.mutating" -}}
{{- $apis := .Capabilities.APIVersions -}}
{{- $offline := $apis.Has "extensions/v1beta1" -}}
{{- if ne .Values.gate.mutating "auto" -}}
{{- if ne .Values.gate.mutating "none" }}{{ .Values.gate.mutating }}{{ end -}}
{{- else if $offline -}}
{{- if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}v1{{ end -}}
{{- else if $apis.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
v1
{{- else if $apis.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}
v1beta1
{{- end -}}
{{- end -}}

{{- /* An empty configuration for a key "config" without a value. Agents evict through the
controller where no value says otherwise: the program's own default needs the right to
evict any pod. What reads a configuration includes this first. */ -}}
{{- define "plimsoll.configs" -}}
{{- range list .Values.agent .Values.controller -}}
{{- $_ := set . "config" (.config | default dict) -}}
{{- end -}}
{{- $eviction := .Values.agent.config.eviction | default dict -}}
{{- $_ := set $eviction "via" ($eviction.via | default "controller") -}}
{{- $_ := set .Values.agent.config "eviction" $eviction -}}
{{- end -}}

{{- define "plimsoll.image" -}}
{{- if and .Values.image.digest .Values.image.tag -}}
{{- fail "image.digest and image.tag: which of the two runs? Set one of them, and the other to \"\"" -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "plimsoll.priorityClass" -}}
plimsoll{{ if eq .Values.priorityClass.preemptionPolicy "Never" }}-non-preempting{{ end }}
{{- end -}}

{{- /* Where a pod may run: a dict of the values that say so, and of the tolerations
beside those of our taints. Tolerations cannot match a key prefix. */ -}}
{{- define "plimsoll.placement" -}}
{{- with .values.nodeSelector -}}
nodeSelector: {{- toYaml . | nindent 2 }}
{{ end }}
{{- with .values.affinity -}}
affinity: {{- toYaml . | nindent 2 }}
{{ end -}}
# Also where every node is under pressure.
tolerations:
  {{- range list "MemoryContention" "DiskContention" "NetworkContention" "FilesystemPressure" "CPUContention" "CPUSuppression" "OOMStorm" "ReclaimedOvercommit" "NUMAMemoryContention" "RootfsOveruse" }}
  - {key: plimsoll.dev/{{ . }}, operator: Exists}
  {{- end }}
  {{- with .tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* The labels of every object, and those of a pod: without the chart's version, so
that a new chart with the same image does not replace pods. */ -}}
{{- define "plimsoll.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "plimsoll.podLabels" . }}
{{- end -}}

{{- define "plimsoll.podLabels" -}}
app.kubernetes.io/name: plimsoll
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: plimsoll
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The security context of a process that needs nothing of its node. */ -}}
{{- define "plimsoll.unprivileged" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* The security context of the pod of such a process: its group may read files of
volumes that other users may not (defaultMode: 0440). */ -}}
{{- define "plimsoll.unprivilegedPod" -}}
fsGroup: 65532
{{- end -}}

{{- /* A post-delete hook, in the order of its weight. */ -}}
{{- define "plimsoll.release" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /* On OpenShift, whose API server admits a pod only under a
SecurityContextConstraints that its account may use: that right. A list of the root,
the account, the SecurityContextConstraints and the annotations. */ -}}
{{- define "plimsoll.scc" -}}
{{- $root := index . 0 -}}
{{- if $root.Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- $metadata := dict "name" (printf "%s-scc" (index . 1)) "namespace" "plimsoll-system" "labels" (include "plimsoll.labels" $root | fromYaml) }}
{{- with index . 3 }}
{{- $_ := set $metadata "annotations" . }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{- toYaml $metadata | nindent 2 }}
rules:
  - apiGroups: [security.openshift.io]
    resources: [securitycontextconstraints]
    resourceNames: [{{ index . 2 }}]
    verbs: [use]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{- toYaml $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $metadata.name }}
subjects:
  - kind: ServiceAccount
    name: {{ index . 1 }}
    namespace: plimsoll-system
{{- end }}
{{- end -}}
