{{- /* The objects of a manifest, as they stand there. Namespaces are left out: one
is the release's, which Helm makes, the other stands in namespace.yaml. */ -}}
{{- define "plimsoll.manifest" -}}
{{- range splitList "\n---\n" . }}
{{- if ne (fromYaml .).kind "Namespace" }}
---
{{ . | trim }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "plimsoll.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "plimsoll.labels" -}}
app.kubernetes.io/name: plimsoll
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
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

{{- /* A post-delete hook, in the order of its weight. */ -}}
{{- define "plimsoll.release" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
