// Package chart tests the container image and the Helm chart as whoever installs
// Plimsoll meets them: the image as make builds it, the chart by a real helm on a
// real control plane, the pods it makes run as processes in the image.
package chart
