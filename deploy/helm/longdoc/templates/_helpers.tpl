{{- define "longdoc.name" -}}
{{- if contains "longdoc" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-longdoc" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "longdoc.selector" -}}
app.kubernetes.io/name: longdoc
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "longdoc.labels" -}}
{{ include "longdoc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
