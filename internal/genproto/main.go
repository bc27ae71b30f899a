// Genproto writes the Go code of .proto files beside them, with the compiler and
// generator that go.mod pins: no protoc has to be installed. With -check it writes
// nothing and fails when a file is not what it would write.
//
//	go run ./internal/genproto [-check] FILE.proto …
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail when a file would change")
	flag.Parse()
	for _, name := range flag.Args() {
		if err := run(name, *check); err != nil {
			fmt.Fprintf(os.Stderr, "genproto: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

var errStale = errors.New("not what it generates; run go generate")

func run(name string, check bool) error {
	code, err := generate(name)
	if err != nil {
		return err
	}
	target := name[:len(name)-len(filepath.Ext(name))] + ".pb.go"
	if !check {
		return os.WriteFile(target, code, 0o644)
	}
	have, err := os.ReadFile(target)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, code) {
		return fmt.Errorf("%s: %w", target, errStale)
	}
	return nil
}

// generate returns the Go code of one file, which may import the well-known types
// and files of its own folder.
func generate(name string) ([]byte, error) {
	dir, base := filepath.Split(name)
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments
	}
	compiled, err := compiler.Compile(context.Background(), base)
	if err != nil {
		return nil, err
	}
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{base},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(nil, compiled[0], map[string]bool{}),
	})
	if err != nil {
		return nil, err
	}
	for _, file := range plugin.Files {
		if file.Generate {
			internal_gengo.GenerateFile(plugin, file)
		}
	}
	response := plugin.Response()
	switch {
	case response.Error != nil:
		return nil, errors.New(response.GetError())
	case len(response.File) != 1:
		return nil, fmt.Errorf("%d files, want 1", len(response.File))
	}
	return []byte(response.File[0].GetContent()), nil
}

// withImports appends f after the files that it imports.
func withImports(files []*descriptorpb.FileDescriptorProto, f protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[f.Path()] {
		return files
	}
	seen[f.Path()] = true
	for i := range f.Imports().Len() {
		files = withImports(files, f.Imports().Get(i).FileDescriptor, seen)
	}
	return append(files, protodesc.ToFileDescriptorProto(f))
}
