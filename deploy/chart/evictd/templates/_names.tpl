{{- define "evictd.tag" -}}{{ .Values.image.tag | default .Chart.AppVersion }}{{- end }}

{{/* A file of deploy/rbac without the Namespace, which Helm makes. */}}
{{- define "evictd.rights" -}}
{{- regexReplaceAll "apiVersion: v1\nkind: Namespace\nmetadata: .*\n---\n" . "" -}}
{{- end }}

{{- define "evictd.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
      imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}
