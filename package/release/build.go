package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// build is a release that is being made.
type build struct {
	source

	arches    []string
	work, out string // directories: what is built on the way, what is published
	// run a command, whose output a person sees.
	run func(name string, args ...string) error
}

// publish makes the release of HEAD into dir, whole or not at all.
func publish(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already, and is not overwritten: remove it, or make release RELEASE=DIR", dir)
	}
	from, err := check(ctx)
	if err != nil {
		return err
	}
	part := dir + ".part"
	b := build{source: from, arches: []string{"amd64", "arm64"}, work: filepath.Join(part, "work"), out: filepath.Join(part, "out")}
	b.run = func(name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		cmd.Env = b.environment(os.Environ())
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
		return nil
	}
	defer func() { _ = os.RemoveAll(part) }() // what is left is removed by the next
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(b.work, 0o755), os.MkdirAll(b.out, 0o755)); err != nil {
		return err
	}
	if err := b.steps(); err != nil {
		return err
	}
	if err := os.Rename(b.out, dir); err != nil {
		return err
	}
	return list(dir)
}

// steps of a release, in the order in which they need each other.
func (b build) steps() error {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"image", b.image},
		{"packages", b.packages},
		{"chart", b.chart},
		{"manifests", b.manifests},
		{"plugin of kubectl", b.plugin},
		{"SBOMs", b.sboms},
		{"notes", b.notes},
		{"checksums", b.checksums},
	} {
		fmt.Fprintf(os.Stderr, "%s: %s\n", b.tag, step.name)
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// image as an OCI layout of all architectures, and its programs: those that are in
// the packages and archives, too.
func (b build) image() error {
	if err := b.run("make", "--no-print-directory", "image", "OUT="+filepath.Join(b.work, "image"), "IMAGE="+b.source.image, "VERSION="+b.tag,
		fmt.Sprint("CREATED=", b.created), "ARCHES="+strings.Join(b.arches, " ")); err != nil {
		return err
	}
	return copyFile(filepath.Join(b.out, "plimsoll_"+b.tag+"_image.tar"), filepath.Join(b.work, "image/image.tar"))
}

// program that was built for an architecture.
func (b build) program(arch string) string {
	return filepath.Join(b.work, "image", "linux-"+arch, "plimsoll")
}

// packages for Debian and RPM. Their programs are linked once more: other bytes
// would mean that builds are not reproducible here.
func (b build) packages() error {
	dir := filepath.Join(b.work, "packages")
	for _, arch := range b.arches {
		if err := b.run("make", "--no-print-directory", "package", "PACKAGES="+dir, "GOARCH="+arch, "VERSION="+b.tag); err != nil {
			return err
		}
		if err := same(b.program(arch), filepath.Join(dir, "plimsoll-"+arch)); err != nil {
			return err
		}
	}
	for _, kind := range []string{"deb", "rpm"} {
		files, err := filepath.Glob(filepath.Join(dir, "*."+kind))
		if err != nil {
			return err
		}
		if len(files) != len(b.arches) {
			return fmt.Errorf("want one .%s for each of %v: %v", kind, b.arches, files)
		}
		for _, file := range files {
			// A file of a GitHub release may have no ~ in its name.
			if err := copyFile(filepath.Join(b.out, strings.ReplaceAll(filepath.Base(file), "~", "-")), file); err != nil {
				return err
			}
		}
	}
	return nil
}

// same tells whether two builds are.
func same(one, other string) error {
	of, err := sum(one)
	if err != nil {
		return err
	}
	is, err := sum(other)
	if err == nil && of != is {
		err = fmt.Errorf("two builds of one commit differ: %s is %s, %s is %s", one, of, other, is)
	}
	return err
}

// chart archive, of what is committed alone: Helm also packs files that git ignores.
func (b build) chart() error {
	archive := filepath.Join(b.work, "deploy.tar")
	return errors.Join(
		b.run("git", "archive", "--format=tar", "--output="+archive, "HEAD", "deploy"),
		b.run("tar", "-x", "-f", archive, "-C", b.work),
		b.run("go", "tool", "-modfile=e2e/tools/helm/go.mod", "helm", "package", filepath.Join(b.work, "deploy"), "--destination", b.out),
	)
}

// manifests for kubectl, as they are committed.
func (b build) manifests() error {
	var errs []error
	for _, name := range []string{"plimsoll.yaml", "gate-mutating.yaml", "gate-mutating-v1beta1.yaml", "release-hidden.yaml"} {
		errs = append(errs, copyFile(filepath.Join(b.out, name), filepath.Join("deploy", name)))
	}
	return errors.Join(errs...)
}

// plugin archives, and krew's manifest with their sums.
func (b build) plugin() error {
	for _, arch := range b.arches {
		if err := archive(filepath.Join(b.out, b.archive(arch)), b.created, []packed{
			{"kubectl-plimsoll", b.program(arch), 0o755},
			{"LICENSE", "LICENSE", 0o644},
			{"NOTICE", "NOTICE", 0o644},
		}); err != nil {
			return err
		}
	}
	template, err := os.ReadFile(".krew.yaml")
	if err != nil {
		return err
	}
	manifest, err := krew(string(template), b.tag, func(name string) (string, error) { return sum(filepath.Join(b.out, name)) })
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.out, "krew.yaml"), []byte(manifest), 0o644)
}

// archive of the plugin for an architecture.
func (b build) archive(arch string) string {
	return fmt.Sprintf("kubectl-plimsoll_%s_linux_%s.tar.gz", b.tag, arch)
}

// sboms of the programs: of one architecture the image, the packages and the archive
// have the same.
func (b build) sboms() error {
	for _, arch := range b.arches {
		if err := copyFile(filepath.Join(b.out, fmt.Sprintf("plimsoll_%s_linux_%s.cdx.json", b.tag, arch)), filepath.Join(b.work, "image", "sbom-"+arch+".cdx.json")); err != nil {
			return err
		}
	}
	return nil
}

// notes of the release.
func (b build) notes() error {
	index, err := os.ReadFile(filepath.Join(b.work, "image/image/index.json"))
	if err != nil {
		return err
	}
	var layout struct {
		Manifests []struct{ Digest string }
	}
	if err := json.Unmarshal(index, &layout); err != nil {
		return err
	}
	if len(layout.Manifests) != 1 {
		return fmt.Errorf("the layout has %d images, not 1", len(layout.Manifests))
	}
	text, err := notes(b.source, layout.Manifests[0].Digest)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.out, "release-notes.md"), []byte(text), 0o644)
}

// checksums of all files, as sha256sum writes them.
func (b build) checksums() error {
	files, err := os.ReadDir(b.out)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, file := range files {
		of, err := sum(filepath.Join(b.out, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", of, file.Name())
	}
	return os.WriteFile(filepath.Join(b.out, "SHA256SUMS"), []byte(text.String()), 0o644)
}

// environment without what would change what is built: the variables of the make that
// runs this, and those of Go that a user may have in the shell or by go env -w.
func (b build) environment(user []string) []string {
	ours := []string{
		"CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false", "GOENV=off", "GOWORK=off", "GOOS=", "GOARCH=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off",
		fmt.Sprint("SOURCE_DATE_EPOCH=", b.created), "HELM_CONFIG_HOME=" + b.work, "HELM_CACHE_HOME=" + b.work, "HELM_DATA_HOME=" + b.work, "TZ=UTC",
		"PACKAGES=", "PACKAGE_ARCH=", "PACKAGE_VERSION=", "MAKEFLAGS=", "MFLAGS=", "MAKELEVEL=", "MAKEOVERRIDES=",
	}
	list := slices.DeleteFunc(slices.Clone(user), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(ours, func(our string) bool { return strings.HasPrefix(our, name+"=") })
	})
	// Empty is not set, for make's ?= and others.
	return append(list, slices.DeleteFunc(ours, func(our string) bool { return strings.HasSuffix(our, "=") })...)
}

// git is what git prints, without the space around it.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, trimmed(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return trimmed(out), nil
}

// sum is a file's SHA-256.
func sum(path string) (string, error) {
	content, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(content)), err
}

func copyFile(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// list what was made.
func list(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := file.Info()
		if err != nil {
			return err
		}
		fmt.Printf("%10d  %s\n", info.Size(), filepath.Join(dir, file.Name()))
	}
	return nil
}
