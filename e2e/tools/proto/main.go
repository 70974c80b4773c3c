// Command proto makes Go from .proto files: what protoc does with the plugins
// protoc-gen-go and protoc-gen-go-grpc, at versions that go.mod pins and without
// a compiler that is not Go.
//
// # Usage
//
//	go -C e2e/tools/proto run . DIRECTORY FILE.proto…
//
// The Go files are written beside the .proto files in DIRECTORY.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: proto DIRECTORY FILE.proto…")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "proto:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, files []string) error {
	request, err := compile(ctx, dir, files)
	if err != nil {
		return err
	}
	for _, generator := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := generate(ctx, generator, request, dir); err != nil {
			return fmt.Errorf("%s: %w", generator, err)
		}
	}
	return nil
}

// compile is what protoc hands to its plugins.
func compile(ctx context.Context, dir string, files []string) ([]byte, error) {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{dir}},
		SourceInfoMode: protocompile.SourceInfoStandard, // the comments
	}
	compiled, err := compiler.Compile(ctx, files...)
	if err != nil {
		return nil, err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: files, Parameter: proto.String("paths=source_relative")}
	for _, f := range compiled {
		request.ProtoFile = append(request.ProtoFile, protoutil.ProtoFromFileDescriptor(f))
	}
	return proto.Marshal(request)
}

func generate(ctx context.Context, generator string, request []byte, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "tool", generator)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(dir, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
